package schema

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func queueMap(name, mode, blob string, r *Rollback, to ...string) *QueueMap {
	m := &QueueMap{Spec: QueueMapSpec{App: "slurm", AppliesTo: to, Mode: mode, Rollback: r}}
	m.Key, m.Blob, m.File = Key{Kind: KindQueueMap, Name: name}, blob, "platform/queues/"+name+".yaml"
	return m
}

func estateOf(maps ...*QueueMap) *Desired {
	d := &Desired{Platform: &Platform{}, Tenants: map[string]*TenantEstate{}}
	for _, m := range maps {
		d.Platform.Put(m)
	}
	return d
}

// withInstance returns d with the instance physics.<project>/train.
func withInstance(d *Desired, project, blob string) *Desired {
	i := &Instance{Spec: InstanceSpec{App: "slurm"}}
	i.Key, i.Blob, i.File = InstanceKey("physics", project, "train"), blob, "tenants/physics/projects/"+project+"/instances/train.yaml"
	d.Tenants["physics"] = &TenantEstate{Name: "physics",
		Projects: map[string]*ProjectEstate{project: {Name: project, Instances: map[string]*Instance{"train": i}}}}
	return d
}

// A project's own map holds before its tenant's, and that before everybody's.
func TestMostSpecificQueueMapHolds(t *testing.T) {
	other := queueMap("a-other", ModeStubPolicy, "", nil)
	other.Spec.App = "ray"
	d := estateOf(other, queueMap("b-all", "", "", nil), queueMap("d-tenant", "", "", nil, "physics"),
		queueMap("e-project", "", "", nil, "physics.lattice"))
	for place, want := range map[[2]string]string{{"physics", "lattice"}: "e-project", {"physics", "lhc"}: "d-tenant",
		{"bio", "genes"}: "b-all"} {
		require.Equal(t, want, d.QueueMapOf("slurm", place[0], place[1]).Key.Name)
	}
	require.Nil(t, estateOf().QueueMapOf("slurm", "physics", "lattice"))
}

func codes(ds []Diagnostic) (out []string) {
	for _, d := range ds {
		out = append(out, string(d.Severity)+" "+d.Code+" "+d.File)
	}
	return out
}

const (
	contractNow = "boundary/v1+0123456789ab" // of this program
	today       = "2026-11-24"
	pageOfMaps  = "platform/queues/README.md"
)

// reviewed returns a map as CUT's list wants it.
func reviewed(m *QueueMap) *QueueMap {
	m.Spec.Contract, m.Spec.Runbook = contractNow, pageOfMaps
	return m
}

// withRunbook returns d with the runbook.
func withRunbook(d *Desired) *Desired {
	d.Platform.Notes = []string{pageOfMaps}
	return d
}

func modes(before, after *Desired) []Diagnostic { return QueueModes(contractNow)(before, after, today) }

func rollback() *Rollback {
	return &Rollback{Owner: "ops", Reason: "incident 7", ExpiresAt: today, FollowUp: "task 12", Runbook: pageOfMaps}
}

func expiredRollback() *Rollback {
	r := rollback()
	r.ExpiresAt = "2026-11-23"
	return r
}

// The queue of a job is the line that names its partition and QoS, else the one that names the partition only. Where
// two lines do, the queue is unknown. In passthrough mode the partition is the queue.
func TestQueueOfAJob(t *testing.T) {
	m := queueMap("all", "", "", nil)
	m.Spec.Queues = []QueueMapping{
		{Queue: "short", Partition: "main"}, {Queue: "urgent", Partition: "main", QOS: "high"},
		{Queue: "gpu-a", Partition: "gpu", Account: "a"}, {Queue: "gpu-b", Partition: "gpu", Account: "b"},
	}
	for at, want := range map[[2]string]string{
		{"main", "normal"}: "short", {"main", "high"}: "urgent", {"main", ""}: "short", {"gpu", "normal"}: "", {"other", "high"}: "",
	} {
		require.Equal(t, want, m.QueueOf(at[0], at[1]), "%v", at)
	}
	m.Spec.Mode = ModePassthrough
	require.Equal(t, "other", m.QueueOf("other", "high"))
	require.Equal(t, "other", (*QueueMap)(nil).QueueOf("other", ""))
}

// Requirement C5: a way back from real-policy names who answers for it and until when; the end of that
// time stops changes of what the map serves and nothing else, until the rollback is renewed or removed.
// A map names accounts and QoS as people write them; accounting keeps them in lower case. A partition keeps its case.
func TestMapNamesAccountsInAnyCase(t *testing.T) {
	have := QueueNames{Partitions: []string{"Mem128"}, Accounts: []string{"phys_lab"}, QOS: []string{"long.q"}}
	lacked := func(partition, account, qos string) (fields []string) {
		for _, n := range (&QueueMapping{Partition: partition, Account: account, QOS: qos}).lacked(have) {
			fields = append(fields, n.field)
		}
		return fields
	}
	require.Empty(t, lacked("Mem128", "Phys_Lab", "Long.q"))
	require.Equal(t, []string{"partition", "account", "qos"}, lacked("mem128", "phys", "long"))
}

func TestRollbackHasOwnerAndEnd(t *testing.T) {
	const file = "platform/queues/all.yaml"
	real := estateOf(queueMap("all", ModeRealPolicy, "1", nil))
	to := func(mode string, r *Rollback) []Diagnostic {
		return modes(real, withRunbook(estateOf(reviewed(queueMap("all", mode, "2", r)))))
	}
	warning := "warning queues.mode " + file
	require.ElementsMatch(t, []string{"error queues.rollback " + file, warning}, codes(to(ModePassthrough, nil)))
	require.Equal(t, []string{warning}, codes(to(ModePassthrough, rollback())))
	require.ElementsMatch(t, []string{"error queues.expired " + file, warning}, codes(to(ModePassthrough, expiredRollback())))
	require.Equal(t, []string{"error queues.rollback " + file}, codes(to(ModeRealPolicy, rollback())))

	// The rollback of the map in force has expired.
	late := func() *Desired {
		return withRunbook(estateOf(reviewed(queueMap("all", ModePassthrough, "2", expiredRollback(), "physics.lattice"))))
	}
	require.Empty(t, modes(late(), late()), "nothing changes")
	served := modes(withInstance(late(), "lattice", "1"), withInstance(late(), "lattice", "2"))
	require.Equal(t, []string{"error queues.expired tenants/physics/projects/lattice/instances/train.yaml"}, codes(served))
	require.True(t, strings.Contains(served[0].Message, "2026-11-23") && strings.Contains(served[0].Message, "ops"), served[0].Message)
	require.Empty(t, modes(withInstance(late(), "lattice", "1"), late()), "a deletion goes on")
	require.Empty(t, modes(withInstance(late(), "lhc", "1"), withInstance(late(), "lhc", "2")), "another project")
	other := late()
	other.Platform.Nodes = map[string]*Node{"gpu-1": {}}
	require.Empty(t, modes(withInstance(late(), "lattice", "1"), withInstance(other, "lattice", "1")),
		"an unrelated change of the platform")
	for name, r := range map[string]*Rollback{"renewed": rollback(), "removed": nil} {
		now := withRunbook(estateOf(reviewed(queueMap("all", ModePassthrough, "3", r, "physics.lattice"))))
		require.Empty(t, modes(late(), now), name)
		require.Equal(t, codes(served), codes(modes(withInstance(late(), "lattice", "1"), withInstance(now, "lattice", "2"))),
			"%s in the same change", name)
		require.Empty(t, modes(withInstance(now, "lattice", "1"), withInstance(now, "lattice", "2")), "%s in force", name)
	}
	deleted := estateOf()
	require.Empty(t, modes(late(), deleted), "the map is removed")
}

// A change of the mode shows each point of CUT's list as fulfilled or missing. The third, the second and the
// fifth can be missing; the transition is stated by the check itself, and no mode has other rules for tenants,
// keys and retries (TestQueueMatrix, TestStubAndRealPolicyAgree, TestIdempotencyKeyHasOneForm).
func TestChangeOfModeShowsTheListOfTheReview(t *testing.T) {
	points := func(missing ...int) []string {
		var out []string
		for i, name := range []string{"transition stated", "field semantics unchanged and documented", "owner, expiry and removal task",
			"tenancy, idempotency and retry unchanged", "contract page in the same change"} {
			state := "fulfilled"
			if slices.Contains(missing, i+1) {
				state = "missing"
			}
			out = append(out, fmt.Sprintf("%d. %s: %s", i+1, name, state))
		}
		return out
	}
	for name, c := range map[string]struct {
		from, to string
		change   func(*QueueMap)
		code     string
		missing  []int
	}{
		"to real-policy": {ModeStubPolicy, ModeRealPolicy, func(*QueueMap) {}, "", nil},
		"back":           {ModeRealPolicy, ModePassthrough, func(m *QueueMap) { m.Spec.Rollback = rollback() }, "", nil},
		"no contract": {ModeStubPolicy, ModeRealPolicy, func(m *QueueMap) { m.Spec.Contract = "" }, CodeQueueContract,
			[]int{2, 5}},
		"another version": {ModeStubPolicy, ModeRealPolicy, func(m *QueueMap) { m.Spec.Contract = "boundary/v2+0123456789ab" },
			CodeQueueContract, []int{2, 5}},
		"another text": {ModeStubPolicy, ModeRealPolicy, func(m *QueueMap) { m.Spec.Contract = "boundary/v1+ffffffffffff" },
			CodeQueueContract, []int{5}},
		"no owner":   {ModeRealPolicy, ModeStubPolicy, func(*QueueMap) {}, CodeQueueRollback, []int{3}},
		"no runbook": {ModeStubPolicy, ModeRealPolicy, func(m *QueueMap) { m.Spec.Runbook = "" }, CodeQueueRunbook, []int{3}},
		"runbook is not there": {ModeStubPolicy, ModeRealPolicy, func(m *QueueMap) { m.Spec.Runbook = "platform/README.md" },
			CodeQueueRunbook, []int{3}},
		"runbook outside": {ModeStubPolicy, ModeRealPolicy, func(m *QueueMap) { m.Spec.Runbook = "docs/rollback.md" },
			CodeQueueRunbook, []int{3}},
		"link without encryption": {ModeStubPolicy, ModeRealPolicy, func(m *QueueMap) { m.Spec.Runbook = "http://example.org/rollback" },
			CodeQueueRunbook, []int{3}},
		"link without a host": {ModeStubPolicy, ModeRealPolicy, func(m *QueueMap) { m.Spec.Runbook = "https://" }, CodeQueueRunbook,
			[]int{3}},
		"link": {ModeStubPolicy, ModeRealPolicy, func(m *QueueMap) { m.Spec.Runbook = "https://example.org/rollback" }, "", nil},
		"runbook of the rollback": {ModeRealPolicy, ModeStubPolicy, func(m *QueueMap) {
			m.Spec.Rollback = rollback()
			m.Spec.Rollback.Runbook = "none"
		}, CodeQueueRunbook, []int{3}},
	} {
		m := reviewed(queueMap("all", c.to, "2", nil))
		c.change(m)
		found := modes(estateOf(queueMap("all", c.from, "1", nil)), withRunbook(estateOf(m)))
		var warning string
		for _, d := range found {
			if d.Severity == SeverityWarning {
				warning = d.Message
				continue
			}
			require.Equal(t, c.code, d.Code, name)
			require.Equal(t, m.File, d.File, name)
		}
		require.Len(t, found, 1+min(1, len(c.code)), name)
		require.Contains(t, warning, "from "+c.from+" to "+c.to+" for everybody", name)
		for _, point := range points(c.missing...) {
			require.Contains(t, warning, point, name)
		}
	}
	require.Empty(t, modes(estateOf(queueMap("all", ModePassthrough, "1", nil)),
		estateOf(queueMap("all", ModePassthrough, "2", nil, "physics"))), "the mode stays")
	require.ElementsMatch(t, []string{"error queues.runbook platform/queues/new.yaml", "error queues.contract platform/queues/new.yaml",
		"warning queues.mode platform/queues/new.yaml"},
		codes(modes(nil, estateOf(queueMap("new", ModeRealPolicy, "1", nil)))), "a new map in real-policy")
	require.Empty(t, modes(nil, estateOf(queueMap("new", ModeStubPolicy, "1", nil))))
}

// A runbook that is needed is not deleted, and one that is named no more is.
func TestRunbookStaysWhileItIsNeeded(t *testing.T) {
	with := func(mode string, notes ...string) *Desired {
		d := estateOf(reviewed(queueMap("all", mode, "1", nil)))
		d.Platform.Notes = notes
		return d
	}
	found := modes(with(ModeRealPolicy, pageOfMaps), with(ModeRealPolicy))
	require.Equal(t, []string{"error queues.runbook " + pageOfMaps}, codes(found))
	require.Contains(t, found[0].Message, "queue map all (platform/queues/all.yaml:")
	require.Empty(t, modes(with(ModeStubPolicy, pageOfMaps), with(ModeStubPolicy)), "stub-policy needs none")
	require.Empty(t, modes(with(ModeRealPolicy), with(ModeRealPolicy)), "it was not there before")
	changed := estateOf(reviewed(queueMap("all", ModeRealPolicy, "2", nil)))
	require.Equal(t, []string{"error queues.runbook " + pageOfMaps}, codes(modes(with(ModeRealPolicy, pageOfMaps), changed)),
		"the map may change while another user deletes its page")
	moved := estateOf(reviewed(queueMap("all", ModeRealPolicy, "2", nil)))
	moved.QueueMaps()[0].Spec.Runbook = "https://example.org/rollback"
	require.Empty(t, modes(with(ModeRealPolicy, pageOfMaps), moved), "the map names another page")
}

// No other way leads out of real-policy without a rollback: a deleted, renamed or narrowed map, or a more
// specific one in another mode.
func TestProjectsLeaveRealPolicyOnlyByARollback(t *testing.T) {
	before := func() *Desired {
		return withInstance(estateOf(queueMap("all", ModeStubPolicy, "1", nil), queueMap("physics", ModeRealPolicy, "1", nil, "physics")),
			"lattice", "1")
	}
	after := func(maps ...*QueueMap) *Desired { return withInstance(withRunbook(estateOf(maps...)), "lattice", "1") }
	all := queueMap("all", ModeStubPolicy, "1", nil)
	for name, c := range map[string]struct {
		maps []*QueueMap
		file string
	}{
		"deleted":  {[]*QueueMap{all}, "physics"},
		"renamed":  {[]*QueueMap{all, queueMap("phys", ModePassthrough, "1", nil, "physics")}, "phys"},
		"narrowed": {[]*QueueMap{all, reviewed(queueMap("physics", ModeRealPolicy, "2", nil, "physics.lhc"))}, "physics"},
		"more specific": {[]*QueueMap{all, queueMap("physics", ModeRealPolicy, "1", nil, "physics"),
			queueMap("own", ModePassthrough, "1", nil, "physics.lattice")}, "own"},
		"no map left": {nil, "physics"},
	} {
		found := modes(before(), after(c.maps...))
		require.Equal(t, []string{"error queues.rollback platform/queues/" + c.file + ".yaml"}, codes(found), name)
		require.Contains(t, found[0].Message, "physics.lattice", name)
	}
	physics := queueMap("physics", ModeRealPolicy, "1", nil, "physics")
	require.Equal(t, []string{"warning queues.mode platform/queues/own.yaml"},
		codes(modes(before(), after(all, physics, reviewed(queueMap("own", ModePassthrough, "1", rollback(), "physics.lattice"))))))
	require.Equal(t, []string{"warning queues.mode platform/queues/renamed.yaml"},
		codes(modes(before(), after(all, reviewed(queueMap("renamed", ModeRealPolicy, "1", nil, "physics"))))), "renamed in the same mode")
	require.Empty(t, modes(before(), estateOf(all)), "no project is served any more")
	stub := after(all, queueMap("physics", ModeStubPolicy, "1", nil, "physics"))
	found := modes(stub, after(queueMap("physics", ModeStubPolicy, "1", nil, "physics.lhc")))
	require.Equal(t, []string{"warning queues.mode platform/queues/physics.yaml"}, codes(found),
		"the map is narrowed, and no other serves the project")
	require.Contains(t, found[0].Message, "from stub-policy to passthrough for physics.lattice")
}

// A queue that promises more than one of several clusters allows is a warning; more than each of them allows is an error.
func TestMapPromisesNoLongerTimeThanAClusterAllows(t *testing.T) {
	var have QueueNames
	for _, minutes := range []int{120, 60, 0} { // the last has no limit
		unit := QueueNames{Partitions: []string{"main"}, Minutes: map[string]int{}}
		if minutes > 0 {
			unit.Minutes["main"] = minutes
		}
		have.addMinutes(unit)
		have.Partitions = append(have.Partitions, "main")
		promise := func(minutes int) []Diagnostic {
			m := QueueMap{Spec: QueueMapSpec{Queues: []QueueMapping{{Queue: "q", Partition: "main", MaxWalltimeMinutes: minutes}}}}
			return m.unknownNames(have)
		}
		require.Empty(t, promise(60))
		switch minutes {
		case 120:
			require.Empty(t, promise(120))
			require.Equal(t, SeverityError, promise(121)[0].Severity)
		case 60:
			require.Equal(t, SeverityWarning, promise(120)[0].Severity)
			require.Contains(t, promise(120)[0].Message, "in one of the clusters that the map serves the partition main allows 60")
			require.Equal(t, SeverityError, promise(121)[0].Severity)
		case 0:
			require.Equal(t, SeverityWarning, promise(9999)[0].Severity)
		}
	}
}
