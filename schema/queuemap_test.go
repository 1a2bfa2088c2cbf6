package schema

import (
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
	d.Tenants["physics"] = &TenantEstate{Name: "physics", Projects: map[string]*ProjectEstate{project: {Name: project, Instances: map[string]*Instance{"train": i}}}}
	return d
}

// A project's own map holds before its tenant's, and that before everybody's.
func TestMostSpecificQueueMapHolds(t *testing.T) {
	other := queueMap("a-other", ModeStubPolicy, "", nil)
	other.Spec.App = "ray"
	d := estateOf(other, queueMap("b-all", "", "", nil), queueMap("d-tenant", "", "", nil, "physics"), queueMap("e-project", "", "", nil, "physics.lattice"))
	for place, want := range map[[2]string]string{{"physics", "lattice"}: "e-project", {"physics", "lhc"}: "d-tenant", {"bio", "genes"}: "b-all"} {
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

// Requirement C5: a way back from real-policy names who answers for it and until when; the end of that
// time stops changes of what the map serves and nothing else, until the rollback is renewed or removed.
func TestRollbackHasOwnerAndEnd(t *testing.T) {
	const file, day = "platform/queues/all.yaml", "2026-11-24"
	valid := Rollback{Owner: "ops", Reason: "incident 7", ExpiresAt: "2026-11-24", FollowUp: "task 12", Runbook: "deploy/queue.md"}
	expired := valid
	expired.ExpiresAt = "2026-11-23"
	real := estateOf(queueMap("all", ModeRealPolicy, "1", nil))

	require.ElementsMatch(t, []string{"error queues.rollback " + file, "warning queues.mode " + file}, codes(QueueModes(real, estateOf(queueMap("all", ModePassthrough, "2", nil)), day)))
	back := QueueModes(real, estateOf(queueMap("all", ModePassthrough, "2", &valid)), day)
	require.Equal(t, []string{"warning queues.mode " + file}, codes(back))
	for _, point := range []string{"from real-policy to passthrough for everybody", "fields of an answer", "who sees which jobs", "idempotency keys and retries", "ops answers for the rollback until 2026-11-24", "task 12 removes it", "deploy/queue.md"} {
		require.Contains(t, back[0].Message, point, "CUT's list for a review")
	}
	require.ElementsMatch(t, []string{"error queues.expired " + file, "warning queues.mode " + file}, codes(QueueModes(real, estateOf(queueMap("all", ModePassthrough, "2", &expired)), day)))
	require.Equal(t, []string{"error queues.rollback " + file}, codes(QueueModes(real, estateOf(queueMap("all", ModeRealPolicy, "2", &valid)), day)))
	require.Empty(t, QueueModes(nil, real, day))

	// The rollback has expired in what is in force.
	late := func() *Desired { return estateOf(queueMap("all", ModePassthrough, "2", &expired, "physics.lattice")) }
	require.Empty(t, QueueModes(late(), late(), day), "nothing changes")
	served := QueueModes(withInstance(late(), "lattice", "1"), withInstance(late(), "lattice", "2"), day)
	require.Equal(t, []string{"error queues.expired tenants/physics/projects/lattice/instances/train.yaml"}, codes(served))
	require.True(t, strings.Contains(served[0].Message, "2026-11-23") && strings.Contains(served[0].Message, "ops"), served[0].Message)
	require.Empty(t, QueueModes(withInstance(late(), "lattice", "1"), late(), day), "a deletion goes on")
	require.Empty(t, QueueModes(withInstance(late(), "lhc", "1"), withInstance(late(), "lhc", "2"), day), "another project")
	renewed := estateOf(queueMap("all", ModePassthrough, "3", &valid, "physics.lattice"))
	require.Empty(t, QueueModes(withInstance(late(), "lattice", "1"), withInstance(renewed, "lattice", "2"), day), "renewed in the same change")
	removed := estateOf(queueMap("all", ModePassthrough, "3", nil, "physics.lattice"))
	require.Empty(t, QueueModes(withInstance(late(), "lattice", "1"), withInstance(removed, "lattice", "2"), day))
}

// No other way leads out of real-policy without a rollback: a deleted, renamed or narrowed map, or a more
// specific one in another mode.
func TestProjectsLeaveRealPolicyOnlyByARollback(t *testing.T) {
	const day = "2026-11-24"
	before := func() *Desired {
		return withInstance(estateOf(queueMap("all", ModeStubPolicy, "1", nil), queueMap("physics", ModeRealPolicy, "1", nil, "physics")), "lattice", "1")
	}
	all := queueMap("all", ModeStubPolicy, "1", nil)
	for name, c := range map[string]struct {
		maps []*QueueMap
		file string
	}{
		"deleted":       {[]*QueueMap{all}, "physics"},
		"renamed":       {[]*QueueMap{all, queueMap("phys", ModePassthrough, "1", nil, "physics")}, "phys"},
		"narrowed":      {[]*QueueMap{all, queueMap("physics", ModeRealPolicy, "2", nil, "physics.lhc")}, "physics"},
		"more specific": {[]*QueueMap{all, queueMap("physics", ModeRealPolicy, "1", nil, "physics"), queueMap("own", ModePassthrough, "1", nil, "physics.lattice")}, "own"},
		"no map left":   {nil, "physics"},
	} {
		found := QueueModes(before(), withInstance(estateOf(c.maps...), "lattice", "1"), day)
		require.Equal(t, []string{"error queues.rollback platform/queues/" + c.file + ".yaml"}, codes(found), name)
		require.Contains(t, found[0].Message, "physics.lattice", name)
	}
	back := &Rollback{Owner: "ops", ExpiresAt: day}
	require.Empty(t, QueueModes(before(), withInstance(estateOf(all, queueMap("physics", ModeRealPolicy, "1", nil, "physics"), queueMap("own", ModePassthrough, "1", back, "physics.lattice")), "lattice", "1"), day))
	require.Empty(t, QueueModes(before(), withInstance(estateOf(all, queueMap("renamed", ModeRealPolicy, "1", nil, "physics")), "lattice", "1"), day), "renamed in the same mode")
	require.Empty(t, QueueModes(before(), estateOf(all), day), "no project is served any more")
}
