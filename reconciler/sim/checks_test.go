package sim

import (
	"fmt"
	"slices"
	"strings"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/event"
)

// checker checks the invariants of the state after each step. It reads what is new since the last one.
type checker struct {
	batches, inForce, effects int             // checked so far
	events                    map[string]bool // ids
	records                   map[string]bool // ids of audit records
	head                      audit.Head
	epochs                    map[string]uint64 // of the last effect on each node
	existed                   map[schema.Key]bool
	wanted                    map[schema.Key]bool   // by each commit of berth/in-force since the unit was made
	firings                   map[string]*outcomes  // by id of the effect
	lasting                   map[string]*lasting   // by unit
	holds                     map[schema.Key]string // on berth/status
	held                      map[schema.Key]string // of each unit when it was observed last
}

func newChecker() checker {
	return checker{events: map[string]bool{}, records: map[string]bool{}, epochs: map[string]uint64{}, existed: map[schema.Key]bool{},
		wanted: map[schema.Key]bool{}, firings: map[string]*outcomes{}, lasting: map[string]*lasting{}, holds: map[schema.Key]string{},
		held: map[schema.Key]string{}}
}

// violate records that an invariant does not hold. The caller has the lock.
func (s *simulation) violate(invariant, format string, a ...any) {
	v := invariant + ": " + fmt.Sprintf(format, a...)
	s.tracef("VIOLATION of %s", v)
	s.violations = append(s.violations, v)
}

// check checks all invariants of the present state. The caller has the lock.
func (s *simulation) check() {
	s.counts["step"]++
	var remains [instances][]string
	for i := range instances {
		remains[i] = s.world.Remains(unitKey(i))
	}
	s.checkPlaces(remains)
	s.checkDeletions(remains)
	for ; s.checker.inForce < len(s.remote.inForce); s.checker.inForce++ {
		s.checkInput(s.checker.inForce)
	}
	for ; s.checker.batches < len(s.remote.batches); s.checker.batches++ {
		s.checkEvents(s.checker.batches)
		s.checkHistory(s.checker.batches)
		s.checkAudit(s.checker.batches)
		if s.isWide {
			s.checkRules(s.checker.batches)
		}
		s.checkEndsOfHolds(s.checker.batches)
	}
	for ; s.checker.effects < len(s.applied); s.checker.effects++ {
		s.checkEffect(s.applied[s.checker.effects])
		s.checkOperation(s.applied[s.checker.effects])
		s.checkHold(s.applied[s.checker.effects])
	}
}

// checkPlaces: a node's GPUs have one user, and a unit has one control plane (I1).
func (s *simulation) checkPlaces(remains [instances][]string) {
	user := map[string]string{}
	for i := range instances {
		key, controls := unitKey(i), 0
		for _, line := range remains[i] {
			member, node, ok := strings.Cut(line, " on ")
			if !ok {
				continue
			}
			if node == "ctl" {
				controls++
				continue
			}
			who := key.Name + " " + member
			if other, used := user[node]; used {
				s.violate("I1", "%s and %s are both on %s", other, who, node)
			}
			user[node] = who
		}
		if controls > 1 {
			s.violate("I1", "%s has %d control planes", key, controls)
		}
	}
}

// checkDeletions: a unit ends only after some commit in force was without it (I5).
func (s *simulation) checkDeletions(remains [instances][]string) {
	tip := s.remote.commits[last(s.remote.inForce)]
	for i := range instances {
		key := unitKey(i)
		wanted := tip != nil && tip.tree.blobs[unitPath(i)] != ""
		exists := len(remains[i]) > 0
		if !wanted {
			s.checker.wanted[key] = false
		}
		if s.checker.existed[key] && !exists && s.checker.wanted[key] {
			s.violate("I5", "%s is gone, and berth/in-force has had it ever since it was made", key)
		}
		if !s.checker.existed[key] && exists {
			s.checker.wanted[key] = wanted
		}
		s.checker.existed[key] = exists
	}
}

// checkInput: the commits of main that are in force never go back (I7).
func (s *simulation) checkInput(n int) {
	now := s.remote.commits[s.remote.inForce[n]].inForce
	if n == 0 {
		return
	}
	before := s.remote.commits[s.remote.inForce[n-1]].inForce
	if now.Commit < before.Commit {
		s.violate("I7", "berth/in-force goes back from %s to %s", before.Commit, now.Commit)
	}
}

// checkEvents: each event is in the log once, each change of a phase that has an event has it in the same commit, and the
// sequence counts them (I4).
func (s *simulation) checkEvents(n int) {
	b := s.remote.batches[n]
	var before reconciler.StatusTree
	if n > 0 {
		before = s.remote.statuses[n-1]
	}
	kinds := map[event.Type]bool{}
	for _, e := range b.Events {
		if s.checker.events[e.EventID] {
			s.violate("I4", "event %s %s is in the log twice: %s", e.EventType, e.EventID, e.Payload)
		}
		s.checker.events[e.EventID] = true
		kinds[event.Type(e.EventType)] = true
	}
	if want := before.Revision.Sequence + uint64(len(b.Events)); b.Revision.Sequence != want {
		s.violate("I4", "the sequence is %d after %d with %d events", b.Revision.Sequence, before.Revision.Sequence, len(b.Events))
	}
	for _, u := range b.Units {
		was := before.Units.Get(u.Key)
		if was != nil && was.Phase == u.Phase {
			continue
		}
		if d, ok := event.Of(u.Key.Kind, string(u.Phase)); ok && !kinds[d.Type] {
			s.violate("I4", "%s becomes %s without an event", u.Key, u.Phase)
		}
	}
}

// checkHistory: the epoch and the commit on berth/status never go back, and one epoch has one leader (I6).
func (s *simulation) checkHistory(n int) {
	if n == 0 {
		return
	}
	before, now := s.remote.batches[n-1].Revision, s.remote.batches[n].Revision
	switch {
	case now.Epoch < before.Epoch, now.Epoch == before.Epoch && now.Leader != before.Leader:
		s.violate("I6", "epoch %d of %s after %d of %s", now.Epoch, now.Leader, before.Epoch, before.Leader)
	case now.Commit < before.Commit:
		s.violate("I6", "berth/status goes back from %s to %s", before.Commit, now.Commit)
	}
}

// checkAudit: the audit records are one chain, and none is there twice (I12).
func (s *simulation) checkAudit(n int) {
	b := s.remote.batches[n]
	for _, r := range b.Audit {
		if s.checker.records[r.RecordID] {
			s.violate("I12", "audit record %s is there twice: %s", r.RecordID, r.Action)
		}
		s.checker.records[r.RecordID] = true
	}
	lines := s.remote.audit[:s.remote.records[n]]
	lines = lines[len(lines)-len(b.Audit):]
	if len(lines) == 0 {
		return
	}
	if first := lines[0].Record; first.Previous != s.checker.head.Hash || first.Sequence != s.checker.head.Sequence+1 {
		s.violate("I12", "the audit chain breaks at record %d", first.Sequence)
	}
	head := audit.Head{Sequence: b.Revision.AuditSequence, Hash: b.Revision.AuditHead}
	if _, err := audit.VerifyTail(lines, head); err != nil {
		s.violate("I12", "the audit chain: %v", err)
	}
	s.checker.head = head
}

// checkEffect: no effect of an earlier epoch on a node (I8), none by a unit whose state is unknown (I11), and each names its
// commit and cause (I12).
func (s *simulation) checkEffect(e effect) {
	node := e.action.Node
	if e.stamp.Epoch < s.checker.epochs[node] {
		s.violate("I8", "%s of %s on %s with epoch %d after %d", e.action.Verb, e.unit, node, e.stamp.Epoch, s.checker.epochs[node])
	}
	s.checker.epochs[node] = max(s.checker.epochs[node], e.stamp.Epoch)
	if e.observed == plan.Unknown {
		s.violate("I11", "%s of %s although its state is unknown", e.action.Verb, e.unit)
	}
	if !slices.Contains(s.remote.main, e.stamp.Commit) || e.stamp.CorrelationID == "" {
		s.violate("I12", "%s of %s names commit %q and cause %q", e.action.Verb, e.unit, e.stamp.Commit, e.stamp.CorrelationID)
	}
}

// spoiled plants a fault into a commit of berth/status.
func (s *simulation) spoiled(b reconciler.StatusBatch) reconciler.StatusBatch {
	late, before := len(s.remote.batches) > 3, len(b.Events)
	switch {
	case s.plant == "event twice" && len(b.Events) > 0:
		b.Events = append(slices.Clone(b.Events), b.Events[0])
		b.Revision.Sequence++
	case s.plant == "event lost" && len(b.Events) > 0:
		b.Revision.Sequence -= uint64(len(b.Events))
		b.Events = nil
	case s.plant == "firing lost":
		b.Events = slices.DeleteFunc(slices.Clone(b.Events), func(e plan.Event) bool { return e.EventType == string(event.RuleFired) })
		b.Revision.Sequence -= uint64(before - len(b.Events))
	case s.plant == "status goes back" && late:
		b.Revision.Commit = s.remote.main[0]
	case s.plant == "epoch goes back" && late:
		b.Revision.Epoch = 0
	case s.plant == "audit lost" && len(b.Audit) > 1:
		b.Audit = b.Audit[1:]
	}
	return b
}
