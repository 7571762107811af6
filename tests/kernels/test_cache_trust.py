"""A cache is believed where it is one's own."""

import json
import os

import pytest

from convoy.backends.kernels.cache import KernelCache
from convoy.errors import CacheUntrusted


def test_a_cache_folder_of_others_is_refused(tmp_path, monkeypatch):
    cache = KernelCache(tmp_path / "kernels")
    cache.put("key", b"code", {})
    assert cache.get("key").library == b"code"
    cache.folder.chmod(0o777)
    with pytest.raises(CacheUntrusted, match=r"everyone may write.*CONVOY_CACHE_DIR"):
        cache.get("key")
    cache.folder.chmod(0o755)
    owner = cache.folder.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner != 0:  # the system's own folders are trusted
        with pytest.raises(CacheUntrusted, match=f"of user {owner}"):
            cache.get("key")


@pytest.mark.parametrize("sha256", ["../../evil", 1, None, "a" * 63, ["a" * 64]])
def test_a_cache_entry_that_names_no_library(tmp_path, sha256):
    (tmp_path / "key.json").write_text(json.dumps({"sha256": sha256, "about": {}}))
    assert KernelCache(tmp_path).get("key") is None
