package usage

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
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

// An open day has the current values of accounting. A run that accounting has no longer keeps its records, and a
// record keeps its billing, and a type of GPUs and a QoS that were removed.
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

// world is the accounting of a cluster and its records, over some days.
type world struct {
	runs   map[int]Job // with Ended zero while they run
	days   map[string][]Record
	first  string // first open day
	now    time.Time
	splits func(Job) []Record
}

// reading returns the records of accounting for days from first on: a run that goes on counts to the last midnight.
func (w *world) reading(first string, takes func(Run) bool) (all []Record) {
	for _, j := range w.runs {
		if j.Ended.IsZero() {
			j.State = ""
			if j.Ended = w.now.Truncate(24 * time.Hour); !j.Ended.After(j.Started) {
				continue
			}
		}
		for _, r := range w.splits(j) {
			if r.Day >= first && takes(r.Run()) {
				all = append(all, r)
			}
		}
	}
	return all
}

// collect writes the open days as the daemon does, and closes those that are over.
func (w *world) collect(closes bool) {
	day, _ := time.Parse(time.DateOnly, w.first)
	last := day.AddDate(0, 0, -1).Format(time.DateOnly)
	b := Book{First: w.first, Now: w.reading(w.first, func(Run) bool { return true })}
	var all []Record
	for date, records := range w.days {
		all = append(all, records...)
		if date >= last {
			b.Have = append(b.Have, records...)
		}
	}
	missing, since := b.Missing()
	b.Now = append(b.Now, w.reading(since.Format(time.DateOnly), func(r Run) bool { return missing[r] })...)
	slices.SortFunc(all, func(a, b Record) int { return strings.Compare(a.Day, b.Day) })
	maps.Copy(w.days, b.OpenDays(slices.DeleteFunc(all, func(r Record) bool { return r.Day >= w.first })))
	if closes {
		w.first = w.now.Format(time.DateOnly)
	}
}

// Through ends that are written back, purges and outages, the records of each run in accounting add up to
// the values of accounting, and closed days never change.
func TestRecordsAddUpToAccounting(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := world{runs: map[int]Job{}, days: map[string][]Record{}, now: began, first: began.Format(time.DateOnly)}
		w.splits = func(j Job) (all []Record) {
			parts, err := Days(j, nil)
			require.NoError(rt, err)
			for _, p := range parts {
				all = append(all, used(Record{Job: p}))
			}
			return all
		}
		purged := map[int]bool{}
		for id := range rapid.IntRange(5, 40).Draw(rt, "steps") {
			w.now = w.now.Add(time.Duration(rapid.IntRange(1, 40).Draw(rt, "hours")) * time.Hour)
			start := w.now.Add(-time.Hour)
			w.runs[id] = Job{Cluster: "c", JobID: id + 1, Submitted: start, Started: start, Resources: Resources{CPUs: 1}}
			for _, other := range slices.Sorted(maps.Keys(w.runs)) {
				j := w.runs[other]
				switch rapid.IntRange(0, 9).Draw(rt, "fate") {
				case 0, 1, 2: // ends, perhaps in the past
					if j.Ended.IsZero() {
						seconds := rapid.Int64Range(0, int64(w.now.Sub(j.Started)/time.Second)).Draw(rt, "ran")
						j.Ended, j.State = j.Started.Add(time.Duration(seconds)*time.Second), "COMPLETED"
						w.runs[other] = j
					}
				case 3:
					if !j.Ended.IsZero() {
						delete(w.runs, other)
						purged[other] = true
					}
				}
			}
			closed, before := w.first, maps.Clone(w.days)
			w.collect(rapid.Bool().Draw(rt, "closes"))
			for day, records := range before {
				if day < closed {
					require.Equal(rt, records, w.days[day], "%s is closed", day)
				}
			}
			got, want := map[int]int64{}, map[int]int64{}
			for _, records := range w.days {
				for _, r := range records {
					got[r.JobID] += r.CPUSeconds
				}
			}
			for _, r := range w.reading("", func(Run) bool { return true }) {
				want[r.JobID] += r.CPUSeconds
			}
			for id := range got {
				if purged[id-1] || got[id] == 0 && want[id] == 0 {
					delete(got, id)
				}
			}
			maps.DeleteFunc(want, func(_ int, n int64) bool { return n == 0 })
			require.Equal(rt, want, got)
		}
	})
}
