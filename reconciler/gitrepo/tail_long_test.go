//go:build long

package gitrepo_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/schema/audit"
)

// logTree builds the tree of a log from the lowest level up. Each level has an
// entry for each of its names, and all entries refer to the same level below.
// mode and id are those of the lowest entries.
func logTree(t *testing.T, s *gittest.Server, mode, id string, levels ...[]string) string {
	t.Helper()
	for _, names := range levels {
		var entries []gittest.TreeEntry
		for _, name := range names {
			entries = append(entries, gittest.TreeEntry{Mode: mode, Name: name, ID: id})
		}
		var err error
		id, err = s.WriteTree(entries...)
		require.NoError(t, err)
		id, mode = strings.TrimSpace(id), "40000"
	}
	return id
}

func blobOf(t *testing.T, s *gittest.Server, data []byte) string {
	t.Helper()
	id, err := s.GitInput(bytes.NewReader(data), "hash-object", "-w", "--stdin")
	require.NoError(t, err)
	return strings.TrimSpace(id)
}

// The end of any audit log is read with bounded effort, and a broken log is
// reported. Otherwise no daemon could take leadership.
func TestLongReadingHostileAuditTailIsBounded(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	last, names := [][]string{{"23"}, {"31"}, {"12"}, {"9999"}, {"audit"}}, numbers("%012d-1.jsonl", 1, 64)
	in := func(id string, names []string) string {
		return logTree(t, s, "100644", id, append([][]string{names}, last...)...)
	}
	stray := blobOf(t, s, []byte("x"))
	large := audit.Encode(audit.Record{Outcome: audit.Outcome{Reason: strings.Repeat("x", 1<<20-1000)}})
	bad, err := s.GitInput(strings.NewReader("bad"), "hash-object", "-t", "tree", "-w", "--literally", "--stdin")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		tree, err string
		large     bool
	}{
		"endless": {logTree(t, s, "100644", stray, []string{"x"}, numbers("%02d", 0, 23), numbers("%02d", 1, 28),
			numbers("%02d", 1, 12), numbers("%04d", 0, 9999), []string{"audit"}), "larger than the read limit", false},
		"no dates": {logTree(t, s, "100644", stray, []string{"x"}, numbers("%02d", 24, 99), numbers("%02d", 32, 99),
			numbers("%02d", 13, 99), numbers("%04d", 0, 9999), []string{"audit"}), "larger than the read limit", false},
		"wide":          {in(stray, numbers("x%07d", 1, 1_000_001)), "larger than the read limit", true},
		"newlines":      {in(blobOf(t, s, bytes.Repeat([]byte("\n"), 4<<20)), names), "not an audit record", true},
		"long lines":    {in(blobOf(t, s, bytes.Repeat(append(large, '\n'), 4)), names), "", true},
		"large":         {in(blobOf(t, s, bytes.Repeat([]byte("x\n"), 4<<20)), names), "larger than the read limit", true},
		"malformed":     {logTree(t, s, "40000", strings.TrimSpace(bad), last[2:]...), "malformed tree", false},
		"no tree":       {logTree(t, s, "40000", stray, last[2:]...), "malformed tree", false},
		"too long tree": {in(stray, []string{strings.Repeat("x", 65<<20)}), "malformed tree", true},
	} {
		t.Run(name, func(t *testing.T) {
			checkout, err := gitrepo.OpenLocal(s.Dir)
			require.NoError(t, err)
			defer checkout.Close()
			for _, since := range []time.Time{{}, day(9)} {
				if !since.IsZero() && c.large {
					continue // it was read to the limit already
				}
				tail, err := checkout.AuditTail(await.Context(t), c.tree, since, 2000)
				require.NoError(t, err)
				require.NotEmpty(t, tail)
				require.LessOrEqual(t, len(tail), 50_000)
				size := 0
				for _, l := range tail {
					size += len(l.Reason)
				}
				require.LessOrEqual(t, size, 16<<20)
				if c.err != "" {
					require.ErrorContains(t, tail[0].Err, c.err)
				}
				_, err = audit.VerifyTail(tail, audit.Head{Sequence: 7, Hash: "known"})
				require.Error(t, err)
			}
		})
	}
}

// An audit batch larger than a segment is split, and reads back unchanged.
func TestLongLargeAuditBatchIsSplitIntoSegments(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	fetch(t, r)
	records := make([]audit.Record, 5_000)
	for i := range records {
		records[i] = audit.Record{OccurredAt: day(9), Action: fmt.Sprint(i), Outcome: audit.Outcome{Reason: strings.Repeat("x", 1000)}}
	}
	records = audit.Chain(audit.Head{}, records)
	head := audit.Head{Sequence: records[4999].Sequence, Hash: records[4999].Hash}
	b := reconciler.StatusBatch{Revision: reconciler.Revision{Epoch: 3, AuditSequence: head.Sequence, AuditHead: head.Hash}, Audit: records}
	tip, err := r.WriteStatus(t.Context(), "", b)
	require.NoError(t, err)
	same, err := r.WriteStatus(t.Context(), tip, b)
	require.NoError(t, err)
	require.Equal(t, tip, same)
	files, err := s.Files(tip)
	require.NoError(t, err)
	require.Contains(t, files, "audit/2026/08/01/09/000000005000-3.jsonl")
	for path, text := range files {
		require.LessOrEqual(t, len(text), 4<<20, path)
	}
	require.NoError(t, verifyAudit(t.Context(), r, tip, head))
	tail, err := r.AuditTail(t.Context(), tip, time.Time{}, 2000)
	require.NoError(t, err)
	require.Len(t, tail, 2000)
	_, err = audit.VerifyTail(tail, head)
	require.NoError(t, err)

	// A long record is valid.
	records = audit.Chain(head, slices.Repeat([]audit.Record{{OccurredAt: day(9),
		Outcome: audit.Outcome{Reason: strings.Repeat("x", 40<<10)}}}, 600))
	head = audit.Head{Sequence: records[599].Sequence, Hash: records[599].Hash}
	tip, err = r.WriteStatus(t.Context(), tip,
		reconciler.StatusBatch{Revision: reconciler.Revision{Epoch: 3, AuditSequence: head.Sequence, AuditHead: head.Hash}, Audit: records})
	require.NoError(t, err)
	tail, err = r.AuditTail(t.Context(), tip, time.Time{}, 2000)
	require.NoError(t, err)
	require.Less(t, len(tail), 500)
	_, err = audit.VerifyTail(tail, head)
	require.NoError(t, err)
}

// A log with one record a day is read completely despite its many directories.
func TestLongAuditTailOfLogWithManyDirectories(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	records := make([]audit.Record, 2100)
	for i := range records {
		records[i] = audit.Record{OccurredAt: day(9).AddDate(0, 0, i), Action: fmt.Sprint(i)}
	}
	files := map[string]string{}
	records = audit.Chain(audit.Head{}, records)
	for _, r := range records {
		files[fmt.Sprintf("audit/%s/%012d-1.jsonl", r.OccurredAt.Format("2006/01/02/15"), r.Sequence)] = string(audit.Encode(r)) + "\n"
	}
	tip := s.MustCommit(t, "berth/status", gittest.Commit{Message: "x", Files: files})
	checkout, err := gitrepo.OpenLocal(s.Dir)
	require.NoError(t, err)
	defer checkout.Close()
	tail, err := checkout.AuditTail(t.Context(), tip, time.Time{}, 2000)
	require.NoError(t, err)
	require.Len(t, tail, 2000)
	_, err = audit.VerifyTail(tail, audit.Head{Sequence: 2100, Hash: records[2099].Hash})
	require.NoError(t, err)
	early, err := checkout.AuditTail(t.Context(), tip, day(9), 2000)
	require.NoError(t, err)
	require.Len(t, early, 2100)
}
