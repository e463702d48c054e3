"""Measurements of speed: prefill and decode, beside other engines and under the machine's ceilings."""

from isobit.lab.bench.ours import Ours
from isobit.lab.bench.peers import PEERS, Peer
from isobit.lab.bench.rounds import Report, measure
from isobit.lab.bench.works import Work, make_works

__all__ = ["PEERS", "Ours", "Peer", "Report", "Work", "make_works", "measure"]
