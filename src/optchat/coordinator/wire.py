from optchat.wire import *  # noqa: F403  (moved; this name goes when its last user has moved)
from optchat.wire import ROUTES  # noqa: F401
