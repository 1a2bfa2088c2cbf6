package audit_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/schema"
	"berth/schema/audit"
)

// text draws any content of a login or a reason, including invalid UTF-8.
var text = rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "a\xffb", "<script>", "\u2028", "line\nline", "\ufffd"}))

func record(t *rapid.T) audit.Record {
	return audit.Record{
		OccurredAt:    time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "at"), 5).In(time.FixedZone("", 3600)),
		CorrelationID: text.Draw(t, "correlation"),
		Author:        audit.Author{Actor: text.Draw(t, "actor"), Approvers: rapid.SliceOfN(text, 0, 2).Draw(t, "approvers")},
		Action:        "document.modified",
		Resource:      audit.Resource{Key: schema.InstanceKey("physics", "lhc", text.Draw(t, "name"))},
		Outcome: audit.Outcome{Verdict: rapid.SampledFrom([]audit.Verdict{audit.Allowed, audit.Denied}).Draw(t, "verdict"),
			Reason: text.Draw(t, "reason"), BreakGlass: rapid.Bool().Draw(t, "break glass")},
		Change: audit.Change{PullRequest: rapid.IntRange(0, 9).Draw(t, "pull request")},
	}
}

// chain draws a chain of 2 to 8 records, written in up to three batches.
func chain(t *rapid.T) (lines [][]byte, head audit.Head) {
	left := make([]audit.Record, rapid.IntRange(2, 8).Draw(t, "records"))
	for i := range left {
		left[i] = record(t)
	}
	for len(left) > 0 {
		n := rapid.IntRange(1, len(left)).Draw(t, "batch")
		for _, r := range audit.Chain(head, left[:n]) {
			lines = append(lines, audit.Encode(r))
			head = audit.Head{Sequence: r.Sequence, Hash: r.Hash}
		}
		left = left[n:]
	}
	return lines, head
}

// verify reads lines as a reader of a file does.
func verify(lines [][]byte, head audit.Head) (audit.Head, error) {
	return audit.Verify(func(yield func(audit.Line) bool) {
		for i, line := range lines {
			r, err := audit.Decode(line)
			if !yield(audit.Line{Record: r, File: "audit.jsonl", Number: i + 1, Err: err}) {
				return
			}
		}
	}, head)
}

func TestChainVerifies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines, head := chain(t)
		end, err := verify(lines, head)
		require.NoError(t, err)
		require.Equal(t, head, end)
		require.EqualValues(t, len(lines), end.Sequence)
	})
}

func TestChainDetectsManipulation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines, head := chain(t)
		i := rapid.IntRange(0, len(lines)-1).Draw(t, "record")
		j := rapid.IntRange(0, len(lines)-1).Draw(t, "other")
		first := i // first broken line
		switch rapid.SampledFrom([]string{"flip", "drop", "repeat", "swap", "truncate", "forge", "rechain"}).Draw(t, "what") {
		case "flip":
			at := rapid.IntRange(0, len(lines[i])-1).Draw(t, "byte")
			lines[i] = bytes.Clone(lines[i])
			lines[i][at] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		case "drop":
			lines = slices.Delete(lines, i, i+1)
		case "repeat":
			lines = slices.Insert(lines, i, lines[i])
			first = i + 1
		case "swap":
			if i == j {
				return
			}
			lines[i], lines[j] = lines[j], lines[i]
			first = min(i, j)
		case "truncate":
			lines = lines[:i]
		case "forge": // replace a record by one with a valid hash
			r := must(audit.Decode(lines[i]))
			r.Reason += "!"
			lines[i] = audit.Encode(audit.Chain(audit.Head{Sequence: r.Sequence - 1, Hash: r.Previous}, []audit.Record{r})[0])
			first = i + 1 // the break is at the next record
		case "rechain": // chain all later records again: only the head shows the change
			from := must(audit.Decode(lines[i]))
			from.Reason += "!"
			rest := []audit.Record{from}
			for _, l := range lines[i+1:] {
				rest = append(rest, must(audit.Decode(l)))
			}
			for k, r := range audit.Chain(audit.Head{Sequence: from.Sequence - 1, Hash: from.Previous}, rest) {
				lines[i+k] = audit.Encode(r)
			}
			first = len(lines) - 1
		}
		_, err := verify(lines, head)
		var broken *audit.BrokenError
		require.ErrorAs(t, err, &broken)
		if broken.File != "" {
			require.Equal(t, first+1, broken.Line, "%v", err)
		} else {
			require.LessOrEqual(t, int(broken.Sequence), len(lines)+1, "%v", err)
		}
	})
}

// The test flips every byte of a chain, not a sample.
func TestEachFlippedByteIsDetected(t *testing.T) {
	r := audit.Record{
		OccurredAt: time.Date(2026, 8, 1, 10, 0, 0, 0, time.UTC),
		Author:     audit.Author{Actor: "ada", Approvers: []string{"bo"}}, Action: "document.added",
		Resource: audit.Resource{Key: schema.InstanceKey("physics", "lhc", "train")},
		Outcome:  audit.Outcome{Verdict: audit.Allowed},
		Change:   audit.Change{Commit: "c0ffee"},
	}
	records := audit.Chain(audit.Head{}, []audit.Record{r, r, r})
	head := audit.Head{Sequence: 3, Hash: records[2].Hash}
	var lines [][]byte
	for _, r := range records {
		lines = append(lines, audit.Encode(r))
	}
	for i := range lines {
		for at := range lines[i] {
			for bit := range 8 {
				lines[i][at] ^= 1 << bit
				_, err := verify(lines, head)
				require.Error(t, err, "bit %d of byte %d of record %d", bit, at, i+1)
				lines[i][at] ^= 1 << bit
			}
		}
	}
	_, err := verify(lines, head)
	require.NoError(t, err)
}

func TestBrokenRecordIsNamed(t *testing.T) {
	records := audit.Chain(audit.Head{}, make([]audit.Record, 4))
	head := audit.Head{Sequence: 4, Hash: records[3].Hash}
	for name, c := range map[string]struct {
		keep []int
		head audit.Head
		want string
	}{
		"one is missing":  {[]int{0, 2, 3}, head, "audit.jsonl:2: record 2: records 2 to 2 are missing before record 3"},
		"one is repeated": {[]int{0, 0, 1, 2, 3}, head, "audit.jsonl:2: record 2: record 1 stands here, which was there before"},
		"cut off":         {[]int{0, 1}, head, "record 3: the last records, up to 4, are missing"},
		"nothing is left": {nil, head, "record 1: the last records, up to 4, are missing"},
		"more than told": {[]int{0, 1, 2, 3}, audit.Head{Sequence: 3, Hash: records[2].Hash},
			"record 4: the chain goes on after record 3, the last one that was written"},
		"another end": {[]int{0, 1, 2, 3}, audit.Head{Sequence: 4, Hash: "x"},
			"record 4: the last record has another hash than the one that was written"},
		"the first is not": {[]int{1, 2, 3}, head, "audit.jsonl:1: record 1: records 1 to 1 are missing before record 2"},
	} {
		t.Run(name, func(t *testing.T) {
			var lines [][]byte
			for _, i := range c.keep {
				lines = append(lines, audit.Encode(records[i]))
			}
			_, err := verify(lines, c.head)
			require.EqualError(t, err, c.want)
		})
	}
}

// A chain holds each record as a reader of the file decodes it, whatever its text and time are.
func TestChainReturnsRecordsAsTheyDecode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := record(t)
		if rapid.Bool().Draw(t, "now") {
			r.OccurredAt = time.Now() // with a monotonic clock
		}
		for _, c := range audit.Chain(audit.Head{}, []audit.Record{r}) {
			require.Equal(t, must(audit.Decode(audit.Encode(c))), c)
		}
	})
}

// The same decision has the same record ID; another decision has another.
func TestRecordIDIdentifiesDecision(t *testing.T) {
	a := audit.Record{OccurredAt: time.Unix(1, 0), Author: audit.Author{Actor: "ada"}, Action: "document.added",
		Change: audit.Change{Commit: "c1"}}
	again := a
	again.OccurredAt = time.Unix(99, 0)
	require.Equal(t, a.ID(), again.ID())
	chained := audit.Chain(audit.Head{Sequence: 7, Hash: "x"}, []audit.Record{again})[0]
	require.Equal(t, a.ID(), chained.RecordID)
	require.Equal(t, a.ID(), chained.ID())
	again.Commit = "c2"
	require.NotEqual(t, a.ID(), again.ID())
}

func must(r audit.Record, err error) audit.Record {
	if err != nil {
		panic(err)
	}
	return r
}
