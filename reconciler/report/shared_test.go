package report_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"berth/reconciler/decide"
	"berth/reconciler/patch"
	"berth/reconciler/plan"
	"berth/reconciler/report"
	"berth/runtimes/backends"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/cli"
	"berth/schema"
	"berth/schema/authority"
	"berth/schema/estate"
)

// The day and the time of all situations.
const today = "2026-11-22"

func observedAt() time.Time { return time.Date(2026, 11, 22, 16, 58, 0, 0, time.UTC) }

// The estate's department is the shared runtime whose cluster has the jobs of a situation.
func department() schema.Key {
	return schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "department"}
}

// Each situation is a pull request on the estate of testdata/shared. Its comment is made as Berth
// makes it: from the documents, the rules of the runtime, and what squeue prints.
func TestSharedRuntimeComments(t *testing.T) {
	files, err := filepath.Glob("testdata/shared/*.txtar")
	require.NoError(t, err)
	loader, err := estate.New(estate.Options{Backends: backends.Definitions(), Releases: backends.Releases()})
	require.NoError(t, err)
	situations := readSituations(t)
	require.GreaterOrEqual(t, len(situations.of), 12)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		if name == "estate" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ar := situations.of[name]
			p, c := situations.pullRequest(t, loader, name)
			checkProposal(t, p, c)
			got := &txtar.Archive{Comment: ar.Comment}
			for _, f := range ar.Files {
				if slices.Contains([]string{"author.txt", "acks.txt", "after.txt", "squeue", "change.patch"}, f.Name) {
					got.Files = append(got.Files, f)
				}
			}
			for _, f := range []struct{ name, data string }{{"plan.txt", report.Text(p)}, {"comment.md", report.Plan(p, c)},
				{"checks.md", shown(report.Checks(p, c))}} {
				got.Files = append(got.Files, txtar.File{Name: f.name, Data: []byte(f.data)})
			}
			if *update {
				require.NoError(t, os.WriteFile(file, txtar.Format(got), 0o644))
				return
			}
			if diff := cmp.Diff(string(txtar.Format(ar)), string(txtar.Format(got))); diff != "" {
				t.Errorf("(-want +got; -update rewrites):\n%s", diff)
			}
		})
	}
}

// situations are the changes of testdata/shared by name.
type situations struct {
	base map[string]string // estate
	jobs string            // what squeue prints
	of   map[string]*txtar.Archive
}

func readSituations(t *testing.T) situations {
	t.Helper()
	s := situations{base: map[string]string{}, of: map[string]*txtar.Archive{}}
	files, err := filepath.Glob("testdata/shared/*.txtar")
	require.NoError(t, err)
	for _, file := range files {
		ar, err := txtar.ParseFile(file)
		require.NoError(t, err)
		s.of[strings.TrimSuffix(filepath.Base(file), ".txtar")] = ar
	}
	for _, f := range s.of["estate"].Files {
		s.base[f.Name] = string(f.Data)
	}
	s.jobs = s.base["squeue"]
	delete(s.base, "squeue")
	delete(s.of, "estate")
	return s
}

// file returns a file of a situation, without its last line break.
func (s *situations) file(name, file string) (string, bool) {
	for _, f := range s.of[name].Files {
		if f.Name == file {
			return strings.TrimSpace(string(f.Data)), true
		}
	}
	return "", false
}

// before returns the estate to which a situation is a change.
func (s *situations) before(t *testing.T, name string) schema.Snapshot {
	if after, ok := s.file(name, "after.txt"); ok {
		return s.after(t, after)
	}
	return estate.Files(s.base)
}

// after returns the estate with the change of a situation.
func (s *situations) after(t *testing.T, name string) *patch.Tree {
	t.Helper()
	for _, f := range s.of[name].Files {
		if f.Name != "change.patch" {
			continue
		}
		parsed, err := patch.Parse(bytes.NewReader(f.Data))
		require.NoError(t, err)
		tree, conflicts, err := parsed.Apply(t.Context(), s.before(t, name))
		require.NoError(t, err)
		require.Empty(t, conflicts)
		return tree
	}
	t.Fatalf("%s has no change.patch", name)
	return nil
}

// pullRequest returns the input of the comment on a situation.
func (s *situations) pullRequest(t *testing.T, loader *estate.Loader, name string) (plan.Proposal, plan.PullContext) {
	t.Helper()
	author, _ := s.file(name, "author.txt")
	base := estates{strings.Repeat("1f0c2a9be0", 4): s.before(t, name)}
	in := decide.Input{
		Repo: base, Base: slices.Collect(maps.Keys(base))[0], Head: strings.Repeat("9d8c7b6a5f", 4), Today: today, Rules: backends.Rules,
		By: &authority.Actor{Login: author, Proof: authority.ProofPullRequest},
	}
	if digest, ok := s.file(name, "acks.txt"); ok {
		in.Acks = []string{digest}
	}
	d := decide.New(decide.Options{Loader: loader, Authority: &decide.Authority{}, Rules: []decide.Rule{decide.Undated(schema.Lifecycle)}})
	in.Memory = runningAsDeclared(t, loader, d, base[in.Base])
	tree := s.after(t, name)
	p, err := d.Change(t.Context(), in, tree, tree.Touched())
	require.NoError(t, err)

	c := plan.PullContext{Number: 7, Observed: observedAt(), Files: files}
	for i := range p.Plans {
		if p.Plans[i].Key == department() {
			c.Jobs = append(c.Jobs, plan.UnitJobs{Key: department(), JobImpact: *p.Plans[i].ImpactOn(s.snapshot(t, name))})
		}
	}
	return p, c
}

// snapshot returns the jobs of a situation, from what squeue prints.
func (s *situations) snapshot(t *testing.T, name string) *plan.Jobs {
	t.Helper()
	text, own := s.file(name, "squeue")
	switch {
	case own && text == "":
		return &plan.Jobs{Unknown: "head-1 did not answer"}
	case !own:
		text = strings.TrimSpace(s.jobs)
	}
	all, err := cli.Snapshot().Decode(cli.Answer{Stdout: []byte(text + "\n")})
	require.NoError(t, err)
	return slurm.JobsOf(all, observedAt())
}

// runningAsDeclared returns the memory of an estate whose units run as declared. An instance that
// uses a shared runtime is there once its project is attached, and has no members.
func runningAsDeclared(t *testing.T, loader *estate.Loader, d *decide.Decider, tree schema.Snapshot) *plan.Memory {
	t.Helper()
	r, err := loader.Load(t.Context(), tree)
	require.NoError(t, err)
	require.Empty(t, r.Diagnostics, "the estate before the change is valid")
	eff := d.Evaluate(r.Desired, r.Desired, today)
	placed := d.Place(eff, plan.Memory{})
	mem := plan.Memory{}
	for key, u := range eff.All() {
		members := placed.Members(key)
		o := plan.Observed{Key: key, Presence: plan.Present, Complete: true, Unit: &plan.Unit{Effective: *u, Members: members}}
		if u.SharedRuntime == "" {
			require.NotEmpty(t, members)
		} else if !isAttached(eff.Unit(schema.SharedRuntimeKey(key.Tenant, u.ControlPlaneScope, u.SharedRuntime)), key.ProjectID()) {
			continue
		}
		for _, m := range members {
			o.Members = append(o.Members, plan.MemberState{Name: m.Name, Node: m.Node, State: plan.Running})
		}
		o = plan.Structural(o)
		mem = mem.With(&plan.Status{Key: key, Phase: plan.PhaseRunning, Observed: &o})
	}
	return &mem
}

func isAttached(u *schema.EffectiveUnit, project string) bool {
	return u != nil && slices.ContainsFunc(u.Attachments, func(a schema.EffectiveAttachment) bool { return a.ProjectID == project })
}

// estates are trees by commit. Nothing is merged here.
type estates map[string]schema.Snapshot

// Snapshot implements decide.Repo.
func (e estates) Snapshot(_ context.Context, commit string) (schema.Snapshot, error) {
	return e[commit], nil
}

// Diff implements decide.Repo.
func (estates) Diff(context.Context, string, string) ([]schema.PathChange, error) {
	return nil, errors.New("not used")
}

// Merge implements decide.Repo.
func (estates) Merge(context.Context, string, string) (string, []string, error) {
	return "", nil, errors.New("not used")
}
