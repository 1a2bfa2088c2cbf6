package gitrepo_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/gitrepo/statusbranch"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
)

// resources returns one resource of each kind with a status, units excluded.
func resources() map[string]plan.ThingStatus {
	out := map[string]plan.ThingStatus{}
	for path, key := range map[string]schema.Key{
		"tenants/physics/shared-runtimes/big/attachments/lhc.yaml": {Kind: schema.KindAttachment, Tenant: "physics", Parent: "big",
			Name: "lhc"},
		"tenants/physics/shared-runtimes/big/operations/drain-1.yaml": {Kind: schema.KindMemberOperation, Tenant: "physics", Parent: "big",
			Name: "drain-1"},
		"tenants/physics/projects/lhc/artifacts/model.yaml": {Kind: schema.KindArtifact, Tenant: "physics", Project: "lhc",
			Name: "model"},
		"tenants/physics/projects/lhc/operations/drain-1.yaml": {Kind: schema.KindMemberOperation, Tenant: "physics",
			Project: "lhc", Name: "drain-1"},
		"tenants/physics/projects/lhc/contributions/spare.yaml": {Kind: schema.KindContribution, Tenant: "physics", Project: "lhc",
			Name: "spare"},
		"tenants/physics/projects/lhc/entitlements/batch.yaml": {Kind: schema.KindEntitlement, Tenant: "physics", Project: "lhc",
			Name: "batch"},
		"platform/shared-runtimes/common/attachments/physics-lhc.yaml": {Kind: schema.KindAttachment, Parent: "common",
			Name: "physics-lhc"},
		"platform/shared-runtimes/common/operations/label-gpu.yaml": {Kind: schema.KindMemberOperation, Parent: "common",
			Name: "label-gpu"},
		"platform/catalog/batch/v1.yaml": {Kind: schema.KindAppVersion, Parent: "batch", Name: "v1"},
		"nodes/gpu-1.yaml":               {Kind: schema.KindNode, Name: "gpu-1"},
	} {
		out[path] = plan.ThingStatus{
			APIVersion: schema.APIVersion, Kind: string(key.Kind) + "Status", Key: key, Phase: "registered",
			Revision: "c0ffee", CorrelationID: "corr-1", Detail: []byte(`{"digest":"sha256:00"}`),
		}
	}
	return out
}

// The status of a resource that is not a unit is written to its path, read back
// by a new reader, and removed by key.
func TestResourceStatusRoundTrip(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	main := fetch(t, r).Main
	b := batch(1, main, unit("physics", "lhc", "train", plan.PhaseRunning))
	want := map[schema.Key]*plan.ThingStatus{}
	for _, st := range resources() {
		b.Things = append(b.Things, st)
		want[st.Key] = &st
	}
	one, err := r.WriteStatus(t.Context(), "", b)
	require.NoError(t, err)
	files, err := s.Files(one)
	require.NoError(t, err)
	for path := range resources() {
		require.Contains(t, files, path)
	}
	again := open(t, s)
	fetch(t, again)
	for name, reader := range map[string]*gitrepo.Repo{"the writer": r, "a fresh reader": again} {
		tree, err := reader.ReadStatus(t.Context(), one)
		require.NoError(t, err)
		require.Empty(t, tree.Warnings, name)
		require.Equal(t, want, tree.Things, name)
		require.Equal(t, 1, tree.Units.Len())
	}
	same, err := r.WriteStatus(t.Context(), one, b)
	require.NoError(t, err)
	require.Equal(t, one, same, "an unchanged status is not written")

	gone := reconciler.StatusBatch{Revision: b.Revision}
	for key := range want {
		gone.Gone = append(gone.Gone, key)
	}
	two, err := r.WriteStatus(t.Context(), one, gone)
	require.NoError(t, err)
	tree, err := r.ReadStatus(t.Context(), two)
	require.NoError(t, err)
	require.Empty(t, tree.Things)
	require.Equal(t, 1, tree.Units.Len())
	files, err = s.Files(two)
	require.NoError(t, err)
	for path := range resources() {
		require.NotContains(t, files, path)
	}
}

func TestResourceWithoutStatusPathIsRejected(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	fetch(t, r)
	for _, key := range []schema.Key{
		{Kind: schema.KindNode, Name: "../x"}, {Kind: schema.KindNode, Name: ""}, {Kind: schema.KindNode, Tenant: "physics", Name: "n"},
		{Kind: schema.KindArtifact, Tenant: "physics", Name: "model"}, {Kind: schema.KindSharedRuntime, Tenant: "a/b", Name: "x"},
		{Kind: schema.KindTenant, Name: "physics"}, {Kind: "Unheard", Name: "x"}, schema.InstanceKey("physics", "lhc", "train"),
	} {
		_, err := r.WriteStatus(t.Context(), "", reconciler.StatusBatch{Things: []plan.ThingStatus{{Key: key}}})
		require.Error(t, err, key.String())
	}
}

// A file that cannot be the status at its path is skipped with a warning.
func TestInvalidResourceStatusIsSkipped(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	fetch(t, r)
	tip, err := r.WriteStatus(t.Context(), "", batch(1, ""))
	require.NoError(t, err)
	tip = s.MustCommit(t, "berth/status", gittest.Commit{Message: "forged", Parent: tip, Files: map[string]string{
		"nodes/gpu-1.yaml":               "apiVersion: berth/v1\nkind: NodeStatus\nkey: {kind: Node, name: gpu-2}\nphase: x\n",
		"nodes/-gpu.yaml":                "x",
		"platform/catalog/batch/v1.yaml": "apiVersion: berth/v1\nkind: InstanceStatus\nkey: {kind: AppVersion, parent: batch, name: v1}\n",
		"platform/shared-runtimes/c":     "[",
		"nodes/deep/er.yaml":             "x",
	}})
	fetch(t, r)
	tree, err := r.ReadStatus(t.Context(), tip)
	require.NoError(t, err)
	require.Empty(t, tree.Things)
	require.Equal(t, []string{
		"nodes/-gpu.yaml: no place for a status file",
		"nodes/deep/er.yaml: no place for a status file",
		"nodes/gpu-1.yaml: its key is not that of its path",
		"platform/catalog/batch/v1.yaml: apiVersion and kind are not berth/v1 and AppVersionStatus",
		"platform/shared-runtimes/c: no place for a status file",
	}, tree.Warnings)
}

// logs writes status commits with numbered events and audit records at the given
// times. It returns the end of the audit chain.
func logs(t *testing.T, r *gitrepo.Repo, tip string, each int, times ...time.Time) (string, audit.Head) {
	t.Helper()
	var head audit.Head
	n := 0
	for i, at := range times {
		b := reconciler.StatusBatch{Revision: reconciler.Revision{Epoch: uint64(3 + i/2)}}
		var records []audit.Record
		for range each {
			n++
			at := at.Add(time.Duration(n) * time.Millisecond)
			b.Events = append(b.Events, plan.Event{EventID: fmt.Sprint(n), EventType: "t", Version: "1", OccurredAt: at,
				CorrelationID: fmt.Sprint("corr-", i), Payload: []byte(`{}`)})
			records = append(records, audit.Record{OccurredAt: at, Action: fmt.Sprint(n)})
		}
		b.Audit = audit.Chain(head, records)
		last := b.Audit[len(b.Audit)-1]
		head = audit.Head{Sequence: last.Sequence, Hash: last.Hash}
		b.Revision.Sequence, b.Revision.AuditSequence, b.Revision.AuditHead = uint64(n), head.Sequence, head.Hash
		var err error
		tip, err = r.WriteStatus(t.Context(), tip, b)
		require.NoError(t, err)
	}
	return tip, head
}

func day(h int) time.Time { return time.Date(2026, 8, 1, h, 59, 0, 0, time.UTC) }

func collect[T any](t *testing.T, seq iter.Seq2[statusbranch.Logged[T], error], name func(T) string) (out []string) {
	t.Helper()
	for l, err := range seq {
		require.NoError(t, err, "%s:%d", l.File, l.Line)
		out = append(out, name(l.Value))
	}
	return out
}

func eventID(e plan.Event) string  { return e.EventID }
func action(r audit.Record) string { return r.Action }
func strays(t *testing.T) (func(string, string), *[]string) {
	t.Helper()
	var said []string
	return func(path, why string) { said = append(said, path+": "+why) }, &said
}

// Both logs are read in the order of writing or its reverse, also if the clock of
// a later leader is slow. A local checkout and the daemon read the same.
func TestLogsAreReadInWritingOrder(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	fetch(t, r)
	tip, head := logs(t, r, "", 3, day(9), day(10), day(8), day(22), day(21).AddDate(0, 0, 1))
	checkout, err := gitrepo.OpenLocal(s.Dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = checkout.Close() })
	want := strings.Fields("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15")
	back := strings.Fields("15 14 13 12 11 10 9 8 7 6 5 4 3 2 1")
	for name, reader := range map[string]logReader{"daemon": r, "checkout": checkout} {
		stray, said := strays(t)
		o := statusbranch.LogOrder{Stray: stray}
		require.Equal(t, want, collect(t, reader.Events(t.Context(), tip, o), eventID), name)
		require.Equal(t, want, collect(t, reader.Audit(t.Context(), tip, o), action), name)
		o.NewestFirst = true
		require.Equal(t, back, collect(t, reader.Events(t.Context(), tip, o), eventID), name)
		require.Equal(t, back, collect(t, reader.Audit(t.Context(), tip, o), action), name)
		require.Empty(t, *said)
		require.NoError(t, verifyAudit(t.Context(), reader, tip, head))
	}
	for range r.Events(t.Context(), tip, statusbranch.LogOrder{}) {
		break // the caller stops early
	}
	require.Empty(t, collect(t, r.Events(t.Context(), "", statusbranch.LogOrder{}), eventID), "no branch, no events")
}

// A long log reads as one segment after the other. A segment that git may not read is refused, also where a plain file has
// the same content. A segment that is longer than git reads at once is read as well.
func TestLongLogIsReadAsOneByOne(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	gittest.LongLog(t, s, 5_000)
	same, err := s.Git("show", "berth/status:events/2026/11/01/10/000000000001-1700000000.jsonl")
	require.NoError(t, err)
	long := strings.Repeat(" ", 20<<20) + "\n"
	in := strings.NewReader(fmt.Sprintf("feature done\ncommit refs/heads/berth/status\ncommitter Berth <berth@localhost> 1793527201 "+
		"+0000\ndata 2\nx\nfrom refs/heads/berth/status^0\n"+
		"M 100755 inline events/2026/11/01/10/000000000002-1700000001.jsonl\ndata %d\n%s\n\nM 100644 inline "+
		"events/2026/11/01/10/000000000003-1700000001.jsonl\ndata %d\n%s\ndone\n",
		len(same)+1, same, len(long), long))
	_, err = s.GitInput(in, "fast-import", "--quiet")
	require.NoError(t, err)
	tip, err := s.Git("rev-parse", "berth/status")
	require.NoError(t, err)
	checkout, err := gitrepo.OpenLocal(s.Dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = checkout.Close() })
	read := func(newestFirst bool) (all []string) {
		for l, err := range checkout.Events(t.Context(), tip, statusbranch.LogOrder{NewestFirst: newestFirst}) {
			all = append(all, fmt.Sprint(l.File, l.Line, l.Value.EventID, err))
		}
		return all
	}
	want := read(true) // asks for one segment after the other
	slices.Reverse(want)
	require.Len(t, want, 5_002)
	require.Contains(t, strings.Join(want, "\n"), "not a plain file")
	require.Equal(t, want, read(false))
}

// logReader reads the logs of berth/status.
type logReader interface {
	Events(context.Context, string, statusbranch.LogOrder) iter.Seq2[statusbranch.Logged[plan.Event], error]
	Audit(context.Context, string, statusbranch.LogOrder) iter.Seq2[statusbranch.Logged[audit.Record], error]
	AuditTail(ctx context.Context, commit string, since time.Time, least int) ([]audit.Line, error)
}

func verifyAudit(ctx context.Context, r logReader, tip string, head audit.Head) error {
	_, err := audit.Verify(func(yield func(audit.Line) bool) {
		for l, err := range r.Audit(ctx, tip, statusbranch.LogOrder{}) {
			if !yield(audit.Line{Record: l.Value, File: l.File, Number: l.Line, Err: err}) {
				return
			}
		}
	}, head)
	return err
}

// Later segments do not go to a forged hour in the future.
func TestForgedFutureHourDoesNotAffectLaterSegments(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	tip := s.MustCommit(t, "berth/status", gittest.Commit{Message: "forged", Files: map[string]string{
		"events/9999/12/31/23/000000000001-1.jsonl": "{}\n", "events/9999/99/99/99/x": "x", "events/20x6/1": "x",
	}})
	r := open(t, s)
	fetch(t, r)
	tip, _ = logs(t, r, tip, 1, day(9))
	files, err := s.Files(tip)
	require.NoError(t, err)
	require.Contains(t, files, "events/2026/08/01/09/000000000001-3.jsonl")
}

// Tampering with a log is reported with its position. Intact lines are still
// read.
func TestTamperedLogIsReportedWithPosition(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	fetch(t, r)
	tip, head := logs(t, r, "", 2, day(9), day(10))
	first := "audit/2026/08/01/09/000000000002-3.jsonl"
	files, err := s.Files(tip)
	require.NoError(t, err)
	lines := strings.SplitAfter(files[first], "\n")
	for name, c := range map[string]struct {
		files  map[string]string
		remove []string
		verify string // expected error of the audit chain
		stray  string
	}{
		"a byte is changed": {files: map[string]string{first: strings.Replace(files[first], `"action":"1"`, `"action":"7"`, 1)},
			verify: first + ":1: record 1: its hash"},
		"a space is added": {files: map[string]string{first: " " + files[first]},
			verify: first + ":1: record 1: not an audit record: it is not in canonical form"},
		"a key is doubled": {files: map[string]string{first: strings.Replace(files[first], `{"record_id"`, `{"Actor":"eve","record_id"`,
			1)}, verify: first + ":1: record 1: not an audit record"},
		"a line is dropped": {files: map[string]string{first: lines[1]}, verify: first + ":1: record 1: records 1 to 1 are missing"},
		"lines are swapped": {files: map[string]string{first: lines[1] + lines[0]},
			verify: first + ":1: record 1: records 1 to 1 are missing"},
		"a line is repeated": {files: map[string]string{first: lines[0] + lines[0] + lines[1]},
			verify: first + ":2: record 2: record 1 stands here"},
		"the end is cut off": {files: map[string]string{first: strings.TrimSuffix(files[first], "\n")},
			verify: first + ":2: record 2: the line is cut off"},
		"bytes of no kind": {files: map[string]string{first: "\x00\xff\n" + files[first]},
			verify: first + ":1: record 1: not an audit record: "},
		"an empty line": {files: map[string]string{first: "\n" + files[first]}, verify: first + ":1: record 1: not an audit record: "},
		"a line without end": {files: map[string]string{first: strings.Repeat("x", 3<<20) + "\n"},
			verify: first + ":1: record 1: the line is longer"},
		"a segment is gone": {remove: []string{first}, verify: "record 1: records 1 to 2 are missing"},
		"the last is gone": {remove: []string{"audit/2026/08/01/10/000000000004-3.jsonl"},
			verify: "record 3: the last records, up to 4, are missing"},
		"all of it is gone": {remove: []string{first, "audit/2026/08/01/10/000000000004-3.jsonl"},
			verify: "record 1: the last records, up to 4, are missing"},
		"a stray file": {files: map[string]string{"audit/notes.txt": "x", "audit/2026/08/01/09/x.jsonl": "x"},
			stray: "audit/2026/08/01/09/x.jsonl: no place for a segment,audit/notes.txt: no place for a segment"},
		// its records are unchanged and in order
		"a segment moved": {remove: []string{first}, files: map[string]string{"audit/2026/08/01/11/000000000002-3.jsonl": files[first]}},
		"renamed to a stray": {remove: []string{first}, files: map[string]string{"audit/2026/08/01/09/x": files[first]},
			verify: "record 1: records 1 to 2 are missing", stray: "audit/2026/08/01/09/x: no place for a segment"},
	} {
		t.Run(name, func(t *testing.T) {
			branch := "forged-" + strings.ReplaceAll(name, " ", "-")
			forged := s.MustCommit(t, branch, gittest.Commit{Message: name, Parent: tip, Files: c.files, Remove: c.remove})
			checkout, err := gitrepo.OpenLocal(s.Dir)
			require.NoError(t, err)
			defer checkout.Close()
			err = verifyAudit(t.Context(), checkout, forged, head)
			if c.verify == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.verify)
				require.Less(t, len(err.Error()), 600, "the error does not quote the whole line")
			}
			stray, said := strays(t)
			for range checkout.Audit(t.Context(), forged, statusbranch.LogOrder{Stray: stray}) {
			}
			require.ElementsMatch(t, strings.FieldsFunc(c.stray, func(r rune) bool { return r == ',' }), *said)
		})
	}
}

// An unreadable event is reported with its position. The other events are still
// read.
func TestUnreadableEventIsReportedWithPosition(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	fetch(t, r)
	tip, _ := logs(t, r, "", 2, day(9), day(10))
	first := "events/2026/08/01/09/000000000002-3.jsonl"
	files, err := s.Files(tip)
	require.NoError(t, err)
	tip = s.MustCommit(t, "forged",
		gittest.Commit{Message: "forged", Parent: tip, Files: map[string]string{first: "{}\n[\n" + files[first] + "\"\xff"}})
	checkout, err := gitrepo.OpenLocal(s.Dir)
	require.NoError(t, err)
	defer checkout.Close()
	var ids, bad []string
	for l, err := range checkout.Events(t.Context(), tip, statusbranch.LogOrder{}) {
		if err != nil {
			bad = append(bad, fmt.Sprintf("%s:%d", l.File, l.Line))
			continue
		}
		ids = append(ids, l.Value.EventID)
	}
	require.Equal(t, []string{"1", "2", "3", "4"}, ids)
	require.Equal(t, []string{first + ":1", first + ":2", first + ":5"}, bad)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range checkout.Events(ctx, tip, statusbranch.LogOrder{}) {
		require.ErrorIs(t, err, context.Canceled)
	}
}

// A symbolic link in a log is not a segment, and is not followed.
func TestSymbolicLinkInLogIsRejected(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	blob, err := s.GitInput(bytes.NewReader([]byte("/etc/passwd")), "hash-object", "-w", "--stdin")
	require.NoError(t, err)
	tree := strings.TrimSpace(blob)
	for i, name := range []string{"000000000001-1.jsonl", "10", "01", "08", "2026", "events"} {
		mode := "040000 tree"
		if i == 0 {
			mode = "120000 blob"
		}
		out, err := s.GitInput(strings.NewReader(fmt.Sprintf("%s %s\t%s\n", mode, tree, name)), "mktree")
		require.NoError(t, err)
		tree = strings.TrimSpace(out)
	}
	checkout, err := gitrepo.OpenLocal(s.Dir)
	require.NoError(t, err)
	defer checkout.Close()
	n := 0
	for l, err := range checkout.Events(t.Context(), tree, statusbranch.LogOrder{}) {
		n++
		require.ErrorContains(t, err, "not a plain file")
		require.Equal(t, "events/2026/08/01/10/000000000001-1.jsonl", l.File)
	}
	require.Equal(t, 1, n)
}

// wrongClock is a clock that is right, then a year ahead, then right, then some
// hours behind.
func wrongClock() []time.Time {
	return []time.Time{day(9), day(10), day(10).AddDate(1, 0, 0), day(11).AddDate(1, 0, 0), day(11), day(12), day(6), day(13)}
}

// The sequence gives the order, not the directory. A wrong clock neither breaks
// the audit chain nor reorders the events.
func TestWrongClockDoesNotChangeLogOrder(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	fetch(t, r)
	tip, head := logs(t, r, "", 3, wrongClock()...)
	files, err := s.Files(tip)
	require.NoError(t, err)
	require.Contains(t, files, "audit/2027/08/01/10/000000000009-4.jsonl", "the directory has the wrong time")
	require.Contains(t, files, "audit/2026/08/01/12/000000000018-5.jsonl")
	checkout, err := gitrepo.OpenLocal(s.Dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = checkout.Close() })
	want := numbers("%d", 1, 24)
	back := slices.Clone(want)
	slices.Reverse(back)
	for name, reader := range map[string]logReader{"daemon": r, "checkout": checkout} {
		stray, said := strays(t)
		o := statusbranch.LogOrder{Stray: stray}
		require.Equal(t, want, collect(t, reader.Events(t.Context(), tip, o), eventID), name)
		require.Equal(t, want, collect(t, reader.Audit(t.Context(), tip, o), action), name)
		o.NewestFirst = true
		require.Equal(t, back, collect(t, reader.Events(t.Context(), tip, o), eventID), name)
		require.Equal(t, back, collect(t, reader.Audit(t.Context(), tip, o), action), name)
		require.Empty(t, *said)
		require.NoError(t, verifyAudit(t.Context(), reader, tip, head))
		for _, least := range []int{1, 4, 10, 24, 2000} {
			tail, err := reader.AuditTail(t.Context(), tip, time.Time{}, least)
			require.NoError(t, err)
			require.Len(t, tail, min(least, 24))
			_, err = audit.VerifyTail(tail, head)
			require.NoError(t, err, "the end of the chain, %d records", least)
		}
	}

	// Real tampering is still detected.
	gone := s.MustCommit(t, "gone", gittest.Commit{Message: "x", Parent: tip, Remove: []string{"audit/2027/08/01/10/000000000009-4.jsonl"}})
	require.ErrorContains(t, verifyAudit(t.Context(), checkout, gone, head), "records 7 to 9 are missing")
	tail, err := checkout.AuditTail(t.Context(), gone, time.Time{}, 2000)
	require.NoError(t, err)
	_, err = audit.VerifyTail(tail, head)
	require.ErrorContains(t, err, "records 7 to 9 are missing")
}
