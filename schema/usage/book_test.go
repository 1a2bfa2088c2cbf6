package usage

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// began is when the runs of these tests start: two hours before a midnight.
var began = time.Date(2026, 10, 30, 22, 0, 0, 0, time.UTC)

// run returns the records of a run with one CPU, which ended or goes on after some hours.
func run(t *testing.T, id, hours int, state string) (all []Record) {
	t.Helper()
	parts, err := Days(Job{Cluster: "c", JobID: id, Submitted: began, Started: began, State: state,
		Ended: began.Add(time.Duration(hours) * time.Hour), Resources: Resources{CPUs: 1}}, nil)
	require.NoError(t, err)
	for _, j := range parts {
		all = append(all, used(Record{Job: j, UnitID: "u"}))
	}
	return all
}

// text returns day, job, corrected day and hours of CPUs of records, sorted.
func text(days map[string][]Record) (all []string) {
	for day, records := range days {
		if len(records) == 0 {
			all = append(all, day+" empty")
		}
		for _, r := range records {
			all = append(all, fmt.Sprint(r.Day, " ", r.JobID, " ", r.Corrects, " ", r.CPUSeconds/3600))
		}
	}
	return slices.Sorted(slices.Values(all))
}

func jobsOf(runs map[Run]bool) (ids []int) {
	for r := range maps.Keys(runs) {
		ids = append(ids, r.JobID)
	}
	return slices.Sorted(slices.Values(ids))
}

// since leaves out the records of days before one.
func since(day string, records []Record) []Record {
	return slices.DeleteFunc(records, func(r Record) bool { return r.Day < day })
}

// An open day has what accounting says now. A run that accounting has no longer keeps its records, and a
// record keeps what it was billed to, and the type of GPUs and the QoS that have left.
func TestOpenDaysAreWrittenWhole(t *testing.T) {
	have := slices.Concat(run(t, 1, 72, ""), run(t, 2, 72, ""), run(t, 3, 1, "COMPLETED"))
	for i := range have {
		have[i].BillingPolicyRef, have[i].GPUType, have[i].Queue, have[i].QoS = "cheap", "a100", "short", "low"
	}
	b := Book{Have: have, Now: slices.Concat(run(t, 1, 10, "COMPLETED"), run(t, 4, 1, "COMPLETED"))}
	runs, first := b.Missing()
	require.Equal(t, []int{2, 3}, jobsOf(runs))
	require.Equal(t, began, first)
	days := b.OpenDays(nil)
	require.Equal(t, []string{
		"2026-10-30 1  2", "2026-10-30 2  2", "2026-10-30 3  1", "2026-10-30 4  1",
		"2026-10-31 1  8", "2026-10-31 2  24",
		"2026-11-01 2  24", "2026-11-02 2  22",
	}, text(days))
	for _, r := range days["2026-10-31"] {
		require.Equal(t, []string{"cheap", "a100", "short", "low"}, []string{r.BillingPolicyRef, r.GPUType, r.Queue, r.QoS})
	}
	b.Now = append(b.Now, run(t, 2, 1, "COMPLETED")...)
	require.Equal(t, []string{
		"2026-10-30 1  2", "2026-10-30 2  1", "2026-10-30 3  1", "2026-10-30 4  1", "2026-10-31 1  8",
		"2026-11-01 empty", "2026-11-02 empty",
	}, text(b.OpenDays(nil)))
}

// A run that went on after the last closed day, and by accounting had ended before, is corrected on the first
// open day: by day, once, and the same at each reading while that day is open. Its closed days have no new record.
func TestEndBeforeAClosedDayIsACorrection(t *testing.T) {
	closed := slices.Concat(run(t, 1, 50, ""), run(t, 2, 50, ""), run(t, 3, 30, "COMPLETED")) // the last closed day is November 1st
	have := since("2026-11-01", slices.Clone(closed))
	b := Book{First: "2026-11-02", Have: have, Now: since("2026-11-02", run(t, 2, 60, "COMPLETED"))}
	runs, _ := b.Missing()
	require.Equal(t, []int{1}, jobsOf(runs), "the third one ended")
	b.Now = append(b.Now, run(t, 1, 6, "FAILED")...)
	runs, first := b.Ended()
	require.Equal(t, []int{1}, jobsOf(runs))
	require.Equal(t, began, first)
	want := []string{"2026-11-02 1 2026-10-31 -20", "2026-11-02 1 2026-11-01 -24", "2026-11-02 2  10"}
	days := b.OpenDays(closed)
	require.Equal(t, want, text(days))
	for _, r := range days["2026-11-02"] {
		if r.Corrects == "2026-10-31" {
			require.Equal(t, []any{"FAILED", int64(4 * 3600)}, []any{r.State, r.Held()}, "as it is known now")
		}
	}

	b.Have = slices.Concat(have, days["2026-11-02"])
	require.Equal(t, want, text(b.OpenDays(closed)), "again")
	b.Now = since("2026-11-02", run(t, 2, 60, "COMPLETED"))
	require.Equal(t, want, text(b.OpenDays(closed)), "accounting has it no longer")

	// The next day, the correction is closed. Another one, by an earlier end, has only what it adds.
	b = Book{First: "2026-11-03", Have: days["2026-11-02"]}
	runs, _ = b.Missing()
	require.Empty(t, runs)
	b = Book{First: "2026-11-02", Have: have, Now: run(t, 1, 2, "FAILED")}
	before := slices.Concat(closed, days["2026-11-02"])
	for i := range before {
		if before[i].Corrects != "" {
			before[i].Day = "2026-11-01"
		}
	}
	require.Equal(t, []string{"2026-11-02 1 2026-10-31 -4"}, text(b.OpenDays(before)))
}

// A reused id is another run, also at the same second in another cluster.
func TestRunsOfReusedIDsAreApart(t *testing.T) {
	again, other := run(t, 1, 1, "COMPLETED"), run(t, 1, 1, "COMPLETED")
	again[0].Submitted, other[0].Cluster = began.Add(time.Second), "d"
	b := Book{Have: run(t, 1, 1, "COMPLETED"), Now: slices.Concat(again, other)}
	require.Len(t, b.OpenDays(nil)["2026-10-30"], 3)
}
