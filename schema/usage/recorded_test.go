package usage

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A run that ended earlier than it was recorded loses the parts of later days. A run that a reading lacks
// loses nothing, and closed days stay as they are.
func TestPartsThatARunNoLongerHasAreWithdrawn(t *testing.T) {
	start := time.Date(2026, 10, 30, 22, 0, 0, 0, time.UTC)
	days := func(id int, end time.Duration) []Job {
		parts, err := Days(Job{Cluster: "c", JobID: id, Submitted: start, Started: start, Ended: start.Add(end), CPUs: 1}, nil)
		require.NoError(t, err)
		return parts
	}
	have := NewRecorded()
	for id := 1; id <= 2; id++ {
		for _, j := range days(id, 72*time.Hour) {
			have.Add(Record{Job: j})
		}
	}
	have.Add(Record{Job: days(2, 72*time.Hour)[1], Correction: 4})
	text := func(records []Record) (all []string) {
		for _, r := range records {
			all = append(all, fmt.Sprint(r.JobID, " ", r.Day(), " ", r.Held(), " ", r.Correction))
		}
		slices.Sort(all)
		return all
	}
	again := days(2, 10*time.Hour) // its second day is shorter
	out, missing := have.Withdrawn(again, "2026-11-01")
	require.Equal(t, []string{"2 2026-11-01 0 1", "2 2026-11-02 0 1"}, text(out))
	require.Equal(t, []string{"1 2026-11-01 86400 0", "1 2026-11-02 79200 0"}, text(missing))

	var records []Record
	for _, j := range again {
		records = append(records, Record{Job: j})
	}
	require.Equal(t, []string{"2 2026-10-31 28800 5"}, text(have.Unrecorded(records)))
	for _, r := range append(have.Unrecorded(records), out...) {
		have.Add(r)
	}
	out, _ = have.Withdrawn(again, "")
	require.Empty(t, out, "once")
	require.Empty(t, have.Unrecorded(records))
	require.Equal(t, start.Add(72*time.Hour), have.Last())
}

// A reused id is another run, also at the same second in another cluster, and a record keeps the type of
// GPUs of a node that has left.
func TestRecordsOfReusedIDsAreApart(t *testing.T) {
	at := time.Date(2026, 10, 30, 22, 0, 0, 0, time.UTC)
	job := func(cluster string, submitted time.Time, gpus string) Record {
		return Record{Job: Job{Cluster: cluster, JobID: 1, Submitted: submitted, Started: submitted, Ended: submitted.Add(time.Minute), CPUs: 1, GPUs: 1, GPUType: gpus}}
	}
	have := NewRecorded()
	have.Add(job("c", at, "a100"))
	require.Len(t, have.Unrecorded([]Record{job("c", at.Add(time.Second), ""), job("d", at, "")}), 2)
	require.Empty(t, have.Unrecorded([]Record{job("c", at, "")}))
	require.Empty(t, have.Unrecorded([]Record{job("c", at.In(time.FixedZone("east", 3600)), "a100")}))
}
