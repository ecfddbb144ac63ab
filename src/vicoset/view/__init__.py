"""Pictures of what a compression kept, drawn with Pillow from a support and its image.

``watching`` collects supports while a request runs, ``support`` says what is drawn, ``cells`` where
each visual token lies, ``overlay`` draws it over the image, ``sheet`` puts captioned panels on one
page, ``saving`` writes it. No model is needed for any of it.
page. ``recorded`` reads a support from a record. No model is needed for any of it.
"""

from vicoset.view.frame import frame_of
from vicoset.view.overlay import cluster_map, marked, support_map
from vicoset.view.recorded import sheet_of, support_of
from vicoset.view.saving import check_target, save
from vicoset.view.sheet import Panel, sheet
from vicoset.view.support import Support
from vicoset.view.watching import Watcher

__all__ = [
    "Panel",
    "Support",
    "Watcher",
    "check_target",
    "cluster_map",
    "frame_of",
    "marked",
    "save",
    "sheet",
    "sheet_of",
    "support_map",
    "support_of",
]
