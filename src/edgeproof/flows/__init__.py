"""The lowering recipes, one module per backend, all with the same four functions.

``FLOWS``                     the flows of the backend, as data
``computes_in(flow)``         the arithmetic of the backend on this machine, which sets the noise floor
``prepare(flow, model)``      the model that is exported: quantized (with ``quantized_nodes`` counted by
                              the flow, by whatever its quantizer leaves), or as it came
``lower(flow, program, model)``  an ``EdgeProgramManager`` with the backend's delegates
``inspect(flow, edge)``       opens what was lowered and checks it, where it cannot be run

They are imported on the host for their data and inside the subject for their work: torch and executorch
are imported in the functions only.
"""
