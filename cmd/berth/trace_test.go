package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/schema"
	"berth/schema/audit"
)

// A trace shows the commit and its decision, with the later commit if several were
// decided together. It shows no decision for a commit that is held entirely, and no
// commit for a correlation id that belongs to a read.
func TestTraceOfCommitsDecidedTogether(t *testing.T) {
	s := gittest.New(t, map[string]string{"README.md": "an estate\n"})
	commit := func(subject string) string {
		return s.MustCommit(t, "main",
			gittest.Commit{Message: subject,
				Files: map[string]string{"tenants/physics/projects/lhc/instances/" + subject + ".yaml": "x\n"}})
	}
	open := func() *gitrepo.Repo {
		repo, err := gitrepo.Open(t.Context(), gitrepo.Options{URL: s.URL, Dir: t.TempDir()})
		require.NoError(t, err)
		t.Cleanup(func() { _ = repo.Close() })
		_, err = repo.Fetch(t.Context())
		require.NoError(t, err)
		return repo
	}
	first, held, older, newest := commit("first"), commit("held"), commit("older"), commit("newest")
	repo := open()
	base, err := repo.WriteInForce(t.Context(), "", reconciler.InForce{Commit: first, CorrelationID: "corr-first", Epoch: 7})
	require.NoError(t, err)
	tip, err := repo.WriteInForce(t.Context(), base, reconciler.InForce{Commit: newest, CorrelationID: "corr-newest", Epoch: 7})
	require.NoError(t, err)

	at := time.Date(2026, 8, 1, 10, 0, 0, 0, time.UTC)
	later := at.Add(time.Minute)
	record := func(id, action, commit, base string, at time.Time, v audit.Verdict) audit.Record {
		return audit.Record{
			OccurredAt: at, CorrelationID: id,
			Author: audit.Author{Actor: "ada"}, Action: action,
			Resource: audit.Resource{Key: schema.InstanceKey("physics", "lhc", "train")},
			Outcome:  audit.Outcome{Verdict: v},
			Change:   audit.Change{Commit: commit, Base: base},
		}
	}
	records := audit.Chain(audit.Head{}, []audit.Record{
		record("corr-held", "document.added", held, base, at, audit.Held),
		record("corr-older", "document.added", older, base, later, audit.Allowed),
		record("corr-newest", "document.added", newest, base, later, audit.Allowed),
		record("corr-read", "api.read", newest, base, later.Add(time.Hour), audit.Allowed),
	})
	_, err = repo.WriteStatus(t.Context(), "", reconciler.StatusBatch{
		Revision: reconciler.Revision{Commit: newest, InForce: tip, Epoch: 7, AuditSequence: 4, AuditHead: records[3].Hash}, Audit: records,
	})
	require.NoError(t, err)

	for id, want := range map[string]struct{ commit, decision string }{
		"corr-newest": {"newest", "in force  " + tip[:12]},
		"corr-older":  {"older", "in force  " + tip[:12] + ", decided with " + newest[:12]},
		"corr-held":   {"held", ""},
		"corr-read":   {"", ""},
	} {
		cmd := newRoot()
		var out strings.Builder
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"trace", id, "--repo", s.Dir})
		require.NoError(t, cmd.Execute(), id)
		var commit, decision string
		for line := range strings.Lines(out.String()) {
			switch {
			case strings.HasPrefix(line, "commit"):
				commit = strings.Split(strings.TrimSpace(line), "  ")[3]
				commit, _, _ = strings.Cut(commit, ",")
			case strings.HasPrefix(line, "in force"):
				decision = strings.TrimSpace(line)
			}
		}
		require.Equal(t, want.commit, strings.TrimSpace(commit), "%s:\n%s", id, out.String())
		require.Equal(t, want.decision, decision, "%s:\n%s", id, out.String())
		require.NotContains(t, out.String(), "warning", "main is in force before the first decision")
	}
}
