"""The cost of a message: Hockney's alpha-beta model, links that messages share, and networks of two levels."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

CONTENTION = ("sender", "ports", "link")


@dataclass(frozen=True, repr=False)
class Network:
    r"""A network on which a message of n bytes takes alpha + n / beta seconds.

    Parameters
    ----------
    alpha : float
        Latency of a message [s].
    beta : float
        Bandwidth [bytes/s].
    contention : {"sender", "ports", "link"}
        Where messages wait for one another: at the card of the rank that sends them; there and at the card of the rank
        that receives them, so that many senders to one rank share its bandwidth; on one link that all messages share,
        as on a bus or through a switch too small for its hosts.
    jitter : float
        Standard deviation of the logarithm of a random factor on the time of every message.
    seed : int
        Of the jitter: the same factors in every run.

    References
    ----------
    R. W. Hockney (1994), The communication challenge for MPP, Parallel Computing 20(3), section 2.

    R. Thakur, R. Rabenseifner, W. Gropp (2005), Optimization of collective communication operations in MPICH,
    IJHPCA 19(1), sections 4.1 to 4.5, for the collectives.
    """

    alpha: float = 0.0
    beta: float = float("inf")
    contention: str = field(default="sender", kw_only=True)
    jitter: float = field(default=0.0, kw_only=True)
    seed: int = field(default=0, kw_only=True)

    def __post_init__(self):
        if not self.alpha >= 0:
            raise ValueError(f"Network: alpha is {self.alpha!r}, expected a latency of 0 seconds or more")
        if not self.beta > 0:
            raise ValueError(f"Network: beta is {self.beta!r}, expected a bandwidth above 0 bytes/s")
        if self.contention not in CONTENTION:
            raise ValueError(f"Network: contention is {self.contention!r}, expected one of {', '.join(CONTENTION)}")
        if not self.jitter >= 0:
            raise ValueError(f"Network: jitter is {self.jitter!r}, expected 0 or more")

    def __repr__(self) -> str:
        shown = [f for f in fields(self) if not f.kw_only or getattr(self, f.name) != f.default]
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in shown)})"

    @classmethod
    def preset(cls, name: str):
        """Return a real network by name, such as "ethernet-10g"; `distlearn.comm.network.presets` has the sources."""
        from .presets import PRESETS

        if name not in PRESETS:
            raise ValueError(f"the network is {name!r}, expected one of {', '.join(PRESETS)}")
        return PRESETS[name]

    @classmethod
    def of(cls, network):
        """Return a network, looked up among the presets if it is a name.

        Parameters
        ----------
        network : str or a model of costs
            Such as a `Network`: what has the method `collective`.

        Examples
        --------
        >>> Network.of("ethernet-10g") is Network.preset("ethernet-10g")
        True
        """
        if isinstance(network, str):
            return cls.preset(network)
        if not hasattr(network, "collective"):
            raise TypeError(f"the network is {network!r}, expected a Network or the name of one")
        return network

    @staticmethod
    def fit(world, **options):
        """Measure messages and all-reduces on the ranks of `world`; return a `Fit`: the network and its error.

        See `distlearn.comm.network.fit.fit`.
        """
        from .fit import fit

        return fit(world, **options)

    # -- one message -------------------------------------------------------------------------------------------------
    @property
    def plain(self) -> bool:
        """Whether a message costs alpha + n / beta whoever sends it to whom."""
        return type(self) is Network and self.contention == "sender" and not self.jitter

    @property
    def shared(self) -> bool:
        """Whether messages of different ranks can wait for one another."""
        return self.contention != "sender"

    def message(self, nbytes: float) -> float:
        """Seconds that one message of `nbytes` takes."""
        return self.alpha + nbytes / self.beta

    def route(self, nbytes: float, source: int, dest: int) -> tuple[float, float, tuple]:
        """Say how a message travels.

        Returns
        -------
        latency, seconds : float
            It arrives after both; it occupies its links for the second [s].
        links : tuple
            Names of the links that it needs, all of them at once.
        """
        return self.alpha, nbytes / self.beta, self._links(source, dest)

    def _links(self, source, dest, level: str = "") -> tuple:
        if self.contention == "link":
            return ((level, "link"),)
        out = (level, "out", source)
        return (out,) if self.contention == "sender" else (out, (level, "in", dest))

    # -- collectives -------------------------------------------------------------------------------------------------
    def collective(self, name: str, nbytes: float, ranks: list[int]) -> float:
        """Seconds that the collective `name` takes among the given ranks of the world."""
        return getattr(self, name)(nbytes, len(ranks))

    def all_reduce(self, nbytes: float, size: int) -> float:
        """Ring: 2 (p - 1) messages of n / p bytes, one after another."""
        return 2 * (size - 1) * self.message(nbytes / size)

    def reduce_scatter(self, nbytes: float, size: int) -> float:
        """Ring: p - 1 messages of n / p bytes."""
        return (size - 1) * self.message(nbytes / size)

    def all_gather(self, nbytes: float, size: int) -> float:
        """Ring: p - 1 messages of n / p bytes, where n bytes are what every rank ends up with."""
        return (size - 1) * self.message(nbytes / size)

    def broadcast(self, nbytes: float, size: int) -> float:
        """Binomial tree: ceil(log2 p) messages of n bytes, one after another."""
        return (size - 1).bit_length() * self.message(nbytes)

    def scatter(self, nbytes: float, size: int) -> float:
        """Binomial tree: ceil(log2 p) latencies, and all but the root's own share of n bytes leaves the root."""
        return (size - 1).bit_length() * self.alpha + nbytes * (size - 1) / size / self.beta

    gather = scatter

    def all_to_all(self, nbytes: float, size: int) -> float:
        """Pairwise: p - 1 messages of n / p bytes, where n bytes are what every rank sends in all."""
        return (size - 1) * self.message(nbytes / size)

    def barrier(self, nbytes: float, size: int) -> float:
        """Dissemination: ceil(log2 p) empty messages."""
        return (size - 1).bit_length() * self.alpha


@dataclass(frozen=True)
class HierarchicalNetwork:
    r"""Nodes of several ranks: one network inside a node, a slower one between nodes.

    Ranks 0 .. s - 1 live in the first node, the next s in the second, and so on.

    Parameters
    ----------
    inside : Network
        Between ranks of one node (NVLink, PCIe, shared memory).
    between : Network
        Between nodes (Ethernet, InfiniBand). Its `jitter` and `seed` are those of the whole.
    ranks_per_node : int
        s.
    shared_card : bool
        All ranks of a node send and receive through one network card, instead of each having its own.

    Examples
    --------
    >>> cluster = HierarchicalNetwork(Network(1e-6, 300e9), Network(5e-6, 25e9), ranks_per_node=8)
    >>> cluster.all_reduce(244e6, 8) < cluster.all_reduce(244e6, 16) < cluster.between.all_reduce(244e6, 16)
    True
    """

    inside: Network
    between: Network
    ranks_per_node: int
    shared_card: bool = False
    plain = False

    def __post_init__(self):
        if not hasattr(self.ranks_per_node, "__index__") or self.ranks_per_node < 1:
            raise ValueError(f"HierarchicalNetwork: ranks_per_node is {self.ranks_per_node!r}, expected 1 or more")

    # what a network of one level has, too: as a message between nodes sees it
    @property
    def alpha(self) -> float:
        """Latency between nodes [s]."""
        return self.between.alpha

    @property
    def beta(self) -> float:
        """Bandwidth between nodes [bytes/s]."""
        return self.between.beta

    @property
    def jitter(self) -> float:
        """That of the network between nodes."""
        return self.between.jitter

    @property
    def seed(self) -> int:
        """That of the network between nodes."""
        return self.between.seed

    @property
    def shared(self) -> bool:
        """Whether messages of different ranks can wait for one another."""
        return self.shared_card or self.inside.shared or self.between.shared

    def message(self, nbytes: float) -> float:
        """Seconds that a message of `nbytes` between two nodes takes."""
        return self.between.message(nbytes)

    def route(self, nbytes: float, source: int, dest: int) -> tuple[float, float, tuple]:
        """Say how a message travels: see `Network.route`."""
        a, b = source // self.ranks_per_node, dest // self.ranks_per_node
        if a == b:
            inside = self.inside
            level = ("node", a) if inside.contention == "link" else "inside"  # every node has a bus of its own
            return inside.alpha, nbytes / inside.beta, inside._links(source, dest, level)
        links = self.between._links(source, dest, "between")
        if self.shared_card:
            links += (("card out", a), ("card in", b))
        return self.between.alpha, nbytes / self.between.beta, links

    # -- collectives ---------------------------------------------------------------------------------------------------
    def collective(self, name: str, nbytes: float, ranks: list[int]) -> float:
        """Seconds that the collective `name` takes among the given ranks of the world."""
        nodes: dict[int, int] = {}
        for rank in ranks:
            node = rank // self.ranks_per_node
            nodes[node] = nodes.get(node, 0) + 1
        return self._two_levels(name, nbytes, max(nodes.values()), len(nodes), len(ranks))

    def _collective(name, doc):
        def method(self, nbytes: float, size: int) -> float:
            s = min(self.ranks_per_node, size)
            return self._two_levels(name, nbytes, s, -(-size // s), size)

        method.__name__, method.__doc__ = name, doc
        return method

    all_reduce = _collective("all_reduce", "Reduce-scatter in each node, all-reduce of shares between, all-gather.")
    reduce_scatter = _collective("reduce_scatter", "In each node, then of shares between nodes.")
    all_gather = _collective("all_gather", "Between nodes, then in each node.")
    broadcast = _collective("broadcast", "Between nodes, then in each node.")
    scatter = _collective("scatter", "Between nodes, then in each node.")
    gather = _collective("gather", "In each node, then between nodes.")
    all_to_all = _collective("all_to_all", "Pairwise: with the ranks of one's node, then with all others.")
    barrier = _collective("barrier", "In each node, and between nodes.")

    def _two_levels(self, name: str, n: float, s: int, m: int, p: int) -> float:
        """Seconds among p ranks in m nodes of up to s, for a collective of n bytes."""
        inside, between = self.inside, self.between
        if m == 1:
            return getattr(inside, name)(n, s)
        if s == 1:
            return getattr(between, name)(n, m)
        share = n if self.shared_card else n / s  # what one card carries when all ranks of a node send their share
        if name == "all_reduce":
            two = inside.reduce_scatter(n, s) + between.all_reduce(share, m) + inside.all_gather(n, s)
            return min(two, between.all_reduce(n, p))  # one ring of all ranks, if that is faster
        if name in ("reduce_scatter", "all_gather"):
            return getattr(inside, name)(n, s) + getattr(between, name)(share, m)
        if name in ("scatter", "gather"):
            return getattr(inside, name)(n / m, s) + getattr(between, name)(n, m)
        if name == "all_to_all":
            crowd = s if self.shared_card else 1
            return (s - 1) * inside.message(n / p) + (p - s) * (between.alpha + crowd * n / p / between.beta)
        return getattr(inside, name)(n, s) + getattr(between, name)(n, m)  # broadcast, barrier
