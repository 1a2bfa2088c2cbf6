package decide_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
	"berth/schema/estate"
)

// A document that is held or wrong already is not reported again if a change of another
// one makes the reason differ.
func TestProposalOmitsDocumentsHeldBefore(t *testing.T) {
	jobs := map[string]string{} // of chem
	for i := range 11 {
		jobs[fmt.Sprintf("%sjob-%d.yaml", chemAt, i)] = instance(fmt.Sprint("job-", i), 0, 1)
	}
	without := func(n int) map[string]string { // so many of jobs
		out := map[string]string{}
		for i := range n {
			out[fmt.Sprintf("%sjob-%d.yaml", chemAt, i)] = ""
		}
		return out
	}
	later := map[string]string{chemAt + "later.yaml": instance("later", 0, 1)}
	app := map[string]string{
		"platform/catalog/stream/app.yaml": doc("App", "stream", "spec:\n  display_name: Stream\n  category: scheduler\n  publisher: us\n"),
		"platform/catalog/stream/v1.yaml":  estateFiles(nil)["platform/catalog/batch/v1.yaml"],
	}
	streams := map[string]string{eval: doc("Instance", "eval", "spec:\n  app: stream\n  version: v1\n  display_name: eval\n  roles:\n    worker:\n      count: 1\n")}
	for _, c := range []struct {
		name                string
		inForce, base, head map[string]string // of the estate, each on top of those before it
		held                string            // one document that base holds, and the change for another reason
	}{
		{name: "what it needs", base: streams, head: app, held: eval},
		{name: "how many go, of how many", inForce: with(chem(1), jobs), base: with(without(6), later), head: map[string]string{"README.md": "words\n"}, held: chemAt + "job-0.yaml"},
		{
			name: "by which policy it is refused", base: map[string]string{eval: instance("eval", 3, 4)},
			head: map[string]string{rules: doc("Policy", "policy", "spec:\n  max_gpus_per_instance: 16\n")}, held: eval,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			inForce := estateFiles(c.inForce)
			base := change(inForce, c.base)
			repo := trees{"in-force": inForce, "base": base, "head": change(base, c.head)}
			l := loader(t)
			d, err := commit(t, l, estate.Files(base), estate.Files(inForce))
			require.NoError(t, err)
			require.Contains(t, reasons(d.Held), c.held)
			after, err := commit(t, l, estate.Files(repo["head"]), inForceTree(t, estate.Files(base), estate.Files(inForce), d.Replace))
			require.NoError(t, err)
			require.Contains(t, reasons(after.Held), c.held)
			p, err := decide.New(decide.Options{Loader: l}).Proposal(t.Context(), decide.Input{
				Repo: repo, Base: "base", InForce: "in-force", Permitted: d.Permitted, Head: "head", Memory: running(t, l, inForce), Today: "2026-01-01",
			})
			require.NoError(t, err)
			require.Empty(t, p.Held)
			require.Empty(t, p.Diagnostics)
			require.False(t, p.Blocked())
		})
	}
}

// change is files with others over them: path → content, "" takes one away.
func change(files, over map[string]string) map[string]string {
	out := with(files, over)
	maps.DeleteFunc(out, func(_, data string) bool { return data == "" })
	return out
}

// A released unit that cannot be done blocks no other change.
func TestReleasedBlockedUnitStopsNoOtherChange(t *testing.T) {
	l := loader(t)
	inForce := estateFiles(nil)
	const gpu2, gpu3 = "platform/nodes/gpu-2.yaml", "platform/nodes/gpu-3.yaml"
	base := change(inForce, map[string]string{eval: instance("eval", 8, 1), gpu2: inForce[gpu2] + "  cordoned: true\n", gpu3: inForce[gpu3] + "  cordoned: true\n"})
	repo := trees{"in-force": inForce, "base": base, "words": change(base, map[string]string{"README.md": "words\n"}), "eval": change(base, map[string]string{eval: instance("eval", 7, 1)})}
	propose := func(head string) plan.Proposal {
		p, err := decide.New(decide.Options{Loader: l}).Proposal(t.Context(), decide.Input{
			Repo: repo, Base: "base", InForce: "in-force", Head: head, Memory: running(t, l, inForce), Today: "2026-01-01", Permitted: map[string]string{
				eval: estate.BlobID([]byte(base[eval])), gpu2: estate.BlobID([]byte(base[gpu2])), gpu3: estate.BlobID([]byte(base[gpu3])),
			},
		})
		require.NoError(t, err)
		return p
	}
	p := propose("words")
	require.Equal(t, []string{"eval: blocked place.no_node"}, words(p))
	require.Equal(t, []schema.Key{evalKey}, p.Released)
	require.False(t, p.Blocked())
	p = propose("eval")
	require.Empty(t, p.Released)
	require.True(t, p.Blocked(), "it asks for that itself")
}

// An unauthorized change on main comes into force with no other change, also if no
// permission is asked for that one.
func TestUnauthorizedChangeComesWithNoOther(t *testing.T) {
	s := tell(t, nil)
	inForce := contents(t, s.was.Tree)
	s.commits("vic", map[string]string{train: instance("train", 4, 1)})
	s.commits("mel", map[string]string{eval: instance("eval", 1, 1)})
	d := s.together()
	require.Equal(t, map[string]string{train: estate.HeldUnauthorised}, reasons(d.Held))
	repo := trees{
		"before": inForce, "in-force": contents(t, s.was.Tree), "base": s.main,
		"words": change(s.main, map[string]string{"README.md": "words\n"}), "train": change(s.main, map[string]string{train: instance("train", 2, 1)}),
	}
	for name, o := range map[string]decide.Options{
		"a group":           {Loader: loader(t), Authority: &decide.Authority{Administrators: []string{"root"}}},
		"at a desk":         {Loader: loader(t)},
		"somebody's change": {Loader: loader(t), Authority: &decide.Authority{Administrators: []string{"root"}}},
	} {
		t.Run(name, func(t *testing.T) {
			in := decide.Input{Repo: repo, Base: "base", InForce: "in-force", Permitted: d.Permitted, Head: "words", Memory: running(t, o.Loader, repo["in-force"]), Today: "2026-01-31"}
			if name == "somebody's change" {
				in.By = &authority.Actor{Login: "pia", Proof: authority.ProofPullRequest}
			}
			p, err := decide.New(o).Proposal(t.Context(), in)
			require.NoError(t, err)
			require.Empty(t, words(p))
			in.Head = "train"
			p, err = decide.New(o).Proposal(t.Context(), in)
			require.NoError(t, err)
			require.Equal(t, []string{"modified Instance physics.lhc/train", "train: configure join worker-1"}, words(p))
			require.False(t, p.Blocked())
		})
	}
}

// In a merge group the deletions of the change count as acknowledged, and those held on
// main do not come with it.
func TestMergeGroupNeedsNoAcknowledgement(t *testing.T) {
	l := loader(t)
	jobs, gone := chem(1), map[string]string{}
	for i := range 8 {
		jobs[fmt.Sprintf("%sjob-%d.yaml", chemAt, i)] = instance(fmt.Sprint("job-", i), 0, 1)
		jobs[fmt.Sprintf("%sjob-%d.yaml", at, i)] = instance(fmt.Sprint("job-", i), 0, 1)
		gone[fmt.Sprintf("%sjob-%d.yaml", chemAt, i)] = ""
	}
	inForce := estateFiles(jobs)
	base := change(inForce, gone) // and nobody acknowledged that
	less := map[string]string{}
	for i := range 8 {
		less[fmt.Sprintf("%sjob-%d.yaml", at, i)] = ""
	}
	repo := trees{"in-force": inForce, "base": base, "head": change(base, less)}
	d, err := commit(t, l, estate.Files(base), estate.Files(inForce))
	require.NoError(t, err)
	require.Len(t, d.Held, 8)
	in := decide.Input{Repo: repo, Base: "base", InForce: "in-force", Permitted: d.Permitted, Head: "head", Memory: running(t, l, inForce), Today: "2026-01-01"}
	p, err := decide.New(decide.Options{Loader: l}).Proposal(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, p.Held, 8)
	require.True(t, p.Blocked())

	in.Acked = true
	p, err = decide.New(decide.Options{Loader: l}).Proposal(t.Context(), in)
	require.NoError(t, err)
	require.Empty(t, p.Held)
	require.Empty(t, p.Diagnostics)
	require.False(t, p.Blocked())
	require.Len(t, p.Plans, 8)
	for _, u := range p.Plans {
		require.Equal(t, "physics", u.Key.Tenant)
	}
}
