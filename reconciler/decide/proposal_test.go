package decide_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
	"berth/schema/estate"
)

// A document that was held or invalid before is not reported again if a change of
// another document gives it another reason.
func TestProposalOmitsDocumentsHeldBefore(t *testing.T) {
	jobs := map[string]string{} // instances of chem
	for i := range 11 {
		jobs[fmt.Sprintf("%sjob-%d.yaml", chemAt, i)] = instance(fmt.Sprint("job-", i), 0, 1)
	}
	without := func(n int) map[string]string { // the first n of jobs
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
	streams := map[string]string{eval: doc("Instance", "eval",
		"spec:\n  app: stream\n  version: v1\n  display_name: eval\n  roles:\n    worker:\n      count: 1\n")}
	for _, c := range []struct {
		name                string
		inForce, base, head map[string]string // changes of the estate, each over the previous ones
		held                string            // a document that is held in base, and in the change for another reason
	}{
		{name: "another missing reference", base: streams, head: app, held: eval},
		{name: "another number of deletions", inForce: with(chem(1), jobs), base: with(without(6), later),
			head: map[string]string{"README.md": "words\n"}, held: chemAt + "job-0.yaml"},
		{
			name: "denied by another policy", base: map[string]string{eval: instance("eval", 3, 4)},
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
				Repo: repo, Base: "base", InForce: "in-force", Permitted: d.Permitted, Head: "head", Memory: running(t, l, inForce),
				Today: "2026-01-01",
			})
			require.NoError(t, err)
			require.Empty(t, p.Held)
			require.Empty(t, p.Diagnostics)
			require.False(t, p.Blocked())
		})
	}
}

// meeting is a snapshot of which a file is read only when as many readers want it.
type meeting struct {
	schema.Snapshot
	path    string
	readers *sync.WaitGroup
}

func (m meeting) Read(ctx context.Context, f schema.File, max int) ([]byte, bool, error) {
	if f.Path == m.path {
		m.readers.Done()
		m.readers.Wait()
	}
	return m.Snapshot.Read(ctx, f, max)
}

// A policy that main and a pull request read at the same time, when both are new, is one policy.
func TestProposalIsIndependentOfConcurrentReadings(t *testing.T) {
	base := change(estateFiles(nil), map[string]string{rules: doc("Policy", "policy", "spec:\n  max_gpus_per_instance: 5\n")})
	head := change(base, map[string]string{eval: instance("eval", 1, 16)})
	l := loader(t)
	var readers sync.WaitGroup
	readers.Add(2)
	var both errgroup.Group
	for _, files := range []map[string]string{base, head} {
		both.Go(func() error {
			_, err := l.Load(t.Context(), meeting{estate.Files(files), rules, &readers})
			return err
		})
	}
	require.NoError(t, both.Wait())
	p, err := decide.New(decide.Options{Loader: l}).Proposal(t.Context(), decide.Input{
		Repo: trees{"base": base, "head": head}, Base: "base", InForce: "base", Head: "head",
		Memory: running(t, loader(t), base), Today: "2026-01-01",
	})
	require.NoError(t, err)
	require.Len(t, p.Diagnostics, 1)
	require.NotContains(t, p.Diagnostics[0].Message, "before this change")
}

// change returns files with changes: path → content; "" deletes the file.
func change(files, over map[string]string) map[string]string {
	out := with(files, over)
	maps.DeleteFunc(out, func(_, data string) bool { return data == "" })
	return out
}

// A released unit that cannot be planned blocks no other change.
func TestReleasedBlockedUnitBlocksNoOtherChange(t *testing.T) {
	l := loader(t)
	inForce := estateFiles(nil)
	const gpu2, gpu3 = "platform/nodes/gpu-2.yaml", "platform/nodes/gpu-3.yaml"
	base := change(inForce, map[string]string{eval: instance("eval", 8, 1), gpu2: inForce[gpu2] + "  cordoned: true\n",
		gpu3: inForce[gpu3] + "  cordoned: true\n"})
	repo := trees{"in-force": inForce, "base": base, "words": change(base, map[string]string{"README.md": "words\n"}),
		"eval": change(base, map[string]string{eval: instance("eval", 7, 1)})}
	propose := func(head string) plan.Proposal {
		p, err := decide.New(decide.Options{Loader: l}).Proposal(t.Context(), decide.Input{
			Repo: repo, Base: "base", InForce: "in-force", Head: head, Memory: running(t, l, inForce), Today: "2026-01-01",
			Permitted: map[string]string{
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
	require.True(t, p.Blocked(), "the change itself requests it")
}

// An unauthorized change on main does not come into force with another change, even if
// that change needs no permission.
func TestUnauthorizedChangeComesWithNoOther(t *testing.T) {
	s := tell(t, nil)
	inForce := contents(t, s.was.Tree)
	s.commits("vic", map[string]string{train: instance("train", 4, 1)})
	s.commits("mel", map[string]string{eval: instance("eval", 1, 1)})
	d := s.together()
	require.Equal(t, map[string]schema.HeldReason{train: schema.HeldUnauthorised}, reasons(d.Held))
	repo := trees{
		"before": inForce, "in-force": contents(t, s.was.Tree), "base": s.main,
		"words": change(s.main, map[string]string{"README.md": "words\n"}),
		"train": change(s.main, map[string]string{train: instance("train", 2, 1)}),
	}
	for name, o := range map[string]decide.Options{
		"merge group":      {Loader: loader(t), Authority: &decide.Authority{Administrators: []string{"root"}}},
		"local checkout":   {Loader: loader(t)},
		"change of a user": {Loader: loader(t), Authority: &decide.Authority{Administrators: []string{"root"}}},
	} {
		t.Run(name, func(t *testing.T) {
			in := decide.Input{Repo: repo, Base: "base", InForce: "in-force", Permitted: d.Permitted, Head: "words",
				Memory: running(t, o.Loader, repo["in-force"]), Today: "2026-01-31"}
			if name == "change of a user" {
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

// A merge group needs no acknowledgement of its own deletions, and excludes deletions
// held on main.
func TestMergeGroupNeedsNoAcknowledgement(t *testing.T) {
	l := loader(t)
	jobs, gone := chem(1), map[string]string{}
	for i := range 8 {
		jobs[fmt.Sprintf("%sjob-%d.yaml", chemAt, i)] = instance(fmt.Sprint("job-", i), 0, 1)
		jobs[fmt.Sprintf("%sjob-%d.yaml", at, i)] = instance(fmt.Sprint("job-", i), 0, 1)
		gone[fmt.Sprintf("%sjob-%d.yaml", chemAt, i)] = ""
	}
	inForce := estateFiles(jobs)
	base := change(inForce, gone) // without an acknowledgement
	less := map[string]string{}
	for i := range 8 {
		less[fmt.Sprintf("%sjob-%d.yaml", at, i)] = ""
	}
	repo := trees{"in-force": inForce, "base": base, "head": change(base, less)}
	d, err := commit(t, l, estate.Files(base), estate.Files(inForce))
	require.NoError(t, err)
	require.Len(t, d.Held, 8)
	in := decide.Input{Repo: repo, Base: "base", InForce: "in-force", Permitted: d.Permitted, Head: "head", Memory: running(t, l, inForce),
		Today: "2026-01-01"}
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
