"""A fleet with known truth, for the demo, the tests and the benchmarks.

**It is a simulation, and says so**: every manifest and every `truth.json` carries `"simulated": true`, and vehicles are
called `sim001` on. Nothing it makes may be reported as a result on real trains.

`simulate_fleet` writes bundles as recorders would land them, with the truth apart; `simulate_trip` gives one trip in
memory. Both depend on their arguments alone. Each thing that can vary has its own random stream (`streams`), so that
adding vehicles, raising a rate or breaking a bearing changes nothing else.

The physics in brief, in the order in which a trip is made:

- `route`    one synthetic line: curves and their cant, tunnels, stations, balises, kilometre posts that jump, defects
- `motion`   a driver follows limits and braking curves with limited jerk, stops, opens doors; wheels slip when pulling
             or braking on low adhesion; the odometer counts the wheel, not the train
- `physics`  the compressor runs from 8 to 10 bar; suspension, doors and refilling the brake pipe use air; a leak makes
             it run longer and more often. A bearing is heated in proportion to speed, load and friction, cooled by air
             and speed, and slow to follow (10 to 25 minutes); damage is extra friction that grows from an onset
- `axle_box` rolling noise, knocks at rail defects, and the hits of a damaged bearing
- `sensors`  what each sensor measures of that, with its noise, rate and latency
- `clocks`   offsets up to 2 s, drift up to 100 ppm, warm-up, wander, steps; NTP over LAN, Wi-Fi and cellular links with
             three servers, of which one may lie
- `stamps`, `damage`, `recorder`  encodings of the trip bundle; jitter, gaps, repeated, late and spoilt rows, absent and
             false readings
- `difficulty`  how badly all this goes: named levels, each harder than the default in one thing, and one in all
- `faults`   which vehicle breaks when: the labels
- `trip`, `fleet`     put it together; write it

What it leaves out: running backwards, other trains, weather within a trip, several axles, wear over months. A fault is
repaired overnight.
"""

from pipelines.simulate.difficulty import DEFAULT, LEVELS, Difficulty, level
from pipelines.simulate.faults import Fault, plan_fault
from pipelines.simulate.fleet import FaultEvent, FleetSummary, simulate_fleet, write_bundle, write_truth
from pipelines.simulate.trip import Trip, Truth, simulate_trip

__all__ = [
    "DEFAULT",
    "LEVELS",
    "Difficulty",
    "Fault",
    "FaultEvent",
    "FleetSummary",
    "Trip",
    "Truth",
    "level",
    "plan_fault",
    "simulate_fleet",
    "simulate_trip",
    "write_bundle",
    "write_truth",
]
