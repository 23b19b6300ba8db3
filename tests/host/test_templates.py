from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from edgeproof.host.templates import make_links, worker_environment
from edgeproof.plan.stack import Stack


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site [x]"
    (folder / "sdk").mkdir(parents=True)
    for name in ("a.so", "b.so"):
        (folder / "sdk" / name).write_text(name)
    return folder


@pytest.fixture
def stack(tiny_stack: Stack) -> Stack:
    return replace(tiny_stack, links={"{folder}/lib": "{site}/sdk/*.so"})


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_making_links_again_changes_nothing(stack: Stack, site: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    assert make_links(stack, folder=folder, site=site) == ()
    inode = (folder / "lib").stat().st_ino
    assert make_links(stack, folder=folder, site=site) == ()
    assert (folder / "lib").stat().st_ino == inode
    assert names(folder) == {"lib"}


def test_links_into_another_environment_are_replaced(
    stack: Stack, site: Path, tmp_path: Path
) -> None:
    make_links(stack, folder=tmp_path / "folder", site=site)
    site.rename(tmp_path / "moved")
    (tmp_path / "moved" / "sdk" / "a.so").write_text("new")
    make_links(stack, folder=tmp_path / "folder", site=tmp_path / "moved")
    assert (tmp_path / "folder" / "lib" / "a.so").read_text() == "new"


def test_links_to_what_was_removed_do_not_stay(stack: Stack, site: Path, tmp_path: Path) -> None:
    make_links(stack, folder=tmp_path / "folder", site=site)
    for path in (site / "sdk").iterdir():
        path.unlink()
    assert make_links(stack, folder=tmp_path / "folder", site=site) == ("sdk/*.so",)
    assert names(tmp_path / "folder") == set()


def test_where_links_are_not_permitted_files_are_copied(
    stack: Stack, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError("a privilege is missing")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    for _ in range(2):
        make_links(stack, folder=tmp_path / "folder", site=site)
        assert (tmp_path / "folder" / "lib" / "b.so").read_text() == "b.so"
        assert not (tmp_path / "folder" / "lib" / "b.so").is_symlink()


def test_many_at_once_leave_one_whole_folder(stack: Stack, site: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda _: make_links(stack, folder=folder, site=site), range(40)))
    assert done == [()] * 40
    assert names(folder) == {"lib"}
    assert names(folder / "lib") == {"a.so", "b.so"}


def test_a_path_is_not_lengthened_by_a_run_inside_a_run(stack: Stack, tmp_path: Path) -> None:
    stack = replace(stack, env={"LD_LIBRARY_PATH": "{folder}/lib", "HOME_OF_SDK": "{site}"})
    present = {"LD_LIBRARY_PATH": "/user", "HOME_OF_SDK": "/user"}
    first = worker_environment(stack, folder=tmp_path, site=tmp_path / "s", present=present)
    assert first == {
        "LD_LIBRARY_PATH": f"{tmp_path}/lib:/user",
        "HOME_OF_SDK": str(tmp_path / "s"),
    }
    assert worker_environment(stack, folder=tmp_path, site=tmp_path / "s", present=first) == first
