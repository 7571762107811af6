"""ConvertLayout and AlterOpLayout: other data layouts, with as few transposes as possible.

`rewriting` walks over a function, `rules` know how operators work in another layout,
`conversions` changes the operators that a script names.
"""

from convoy.relay.transform.layouts.passes import AlterOpLayout, ConvertLayout, LayoutConfig

__all__ = ["AlterOpLayout", "ConvertLayout", "LayoutConfig"]
