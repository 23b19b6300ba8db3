"""C++ that is built on first use against the executorch that is installed, and the module that builds it."""
