package usage

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

func job(id int, ended string, project string) Job {
	end, err := time.Parse(time.RFC3339, ended)
	if err != nil {
		panic(err)
	}
	return Job{Cluster: "c", JobID: id, Submitted: end.Add(-2 * time.Hour), Started: end.Add(-time.Hour), Ended: end, State: "COMPLETED", User: "eve", ProjectID: project, CPUs: 2, GPUs: 1}
}

// A record has two anchors: the project whose account a job used, and the unit with its owner
// (requirement D6).
func TestRecordsHaveTwoAnchors(t *testing.T) {
	unit := Record{UnitID: "u-1", AppSlug: "slurm", OperatingMode: "platform_managed", ControlPlaneScope: "platform", RuntimeBackend: "slurm", CorrelationID: "x"}
	names := map[string]string{"physics.lhc": "lhc-terms"}
	of := func(key schema.Key, project string) Record {
		return New(key, unit, job(1, "2026-11-01T10:00:00Z", project), names)
	}

	shared := of(schema.Key{Kind: schema.KindSharedRuntime, Name: "campus"}, "physics.lhc")
	require.Equal(t, []string{"", "SharedRuntime campus", "physics", "physics.lhc", "campus/lhc-terms"},
		[]string{shared.OwnerID, shared.Unit, shared.OrgID, shared.ProjectID, strings.TrimPrefix(shared.AttachmentID, "/")})
	require.Equal(t, []string{"u-1", "slurm", "platform_managed", "platform", "slurm", "x"},
		[]string{shared.UnitID, shared.AppSlug, shared.OperatingMode, shared.ControlPlaneScope, shared.RuntimeBackend, shared.CorrelationID})

	own := of(schema.InstanceKey("bio", "genes", "train"), "")
	require.Equal(t, []string{"bio", "Instance bio.genes/train", "bio", "bio.genes", ""}, []string{own.OwnerID, own.Unit, own.OrgID, own.ProjectID, own.AttachmentID})

	owners := of(schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "pool"}, "")
	require.Equal(t, []string{"physics", "physics", ""}, []string{owners.OwnerID, owners.OrgID, owners.ProjectID})
}

// The same records have the same files in any order, by the day of the end in UTC and by tenant;
// a large file is split between records.
func TestFilesOfRecords(t *testing.T) {
	platform := schema.Key{Kind: schema.KindSharedRuntime, Name: "campus"}
	records := []Record{
		New(platform, Record{}, job(2, "2026-11-01T23:59:59Z", "physics.lhc"), nil),
		New(platform, Record{}, job(1, "2026-11-02T00:30:00+01:00", "bio.genes"), nil),
		New(platform, Record{}, job(3, "2026-11-02T00:00:00Z", ""), nil),
		New(platform, Record{}, job(4, "2026-11-01T12:00:00Z", "physics.lhc"), nil),
	}
	files, err := Files(records)
	require.NoError(t, err)
	var dirs []string
	for _, path := range slices.Sorted(maps.Keys(files)) {
		dirs = append(dirs, path[:strings.LastIndex(path, "/")])
	}
	require.Equal(t, []string{"usage/2026-11-01/bio", "usage/2026-11-01/physics", "usage/2026-11-02/_platform"}, dirs)
	slices.Reverse(records)
	again, err := Files(records)
	require.NoError(t, err)
	require.Equal(t, files, again)

	var many []Record
	for id := range 20_000 {
		many = append(many, New(platform, Record{}, job(id+1, "2026-11-01T12:00:00Z", "physics.lhc"), nil))
	}
	files, err = Files(many)
	require.NoError(t, err)
	require.Greater(t, len(files), 1)
	seen := map[Run]bool{}
	for path, data := range files {
		require.LessOrEqual(t, len(data), MaxFile, path)
		for line := range strings.Lines(string(data)) {
			var r Record
			require.NoError(t, json.Unmarshal([]byte(line), &r))
			require.False(t, seen[r.Run()])
			seen[r.Run()] = true
		}
	}
	require.Len(t, seen, len(many))
}

// Each run counts once, and a clock that was wrong makes no time negative.
func TestSumsCountEachRunOnce(t *testing.T) {
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	run := func(id int, seconds int, project string) Record {
		return Record{Job: Job{Cluster: "c", JobID: id, Submitted: start, Started: start, Ended: start.Add(time.Duration(seconds) * time.Second), ProjectID: project, CPUs: 2, GPUs: 1, MemoryMiB: 512}, Unit: "Instance x"}
	}
	s := NewSums()
	s.Add(run(1, 10, "a.b"))
	later := run(1, 10, "a.b")
	later.CorrelationID = "another"
	s.Add(later)
	again := run(1, 5, "a.b")
	again.Submitted = start.Add(time.Second) // another run of the same id
	s.Add(again)
	s.Add(run(2, -3, "a.c"))
	require.Equal(t, []Sum{
		{Account: Account{ProjectID: "a.b", Unit: "Instance x"}, Jobs: 2, CPUSeconds: 30, GPUSeconds: 15, MemoryMiBSeconds: 7680},
		{Account: Account{ProjectID: "a.c", Unit: "Instance x"}, Jobs: 1},
	}, s.All())
}

// Decode parses the lines of Files and refuses every other line.
func TestDecodeReadsWhatFilesWrites(t *testing.T) {
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	want := Record{Job: Job{Cluster: "c", JobID: 7, Submitted: at, Started: at, Ended: at.Add(time.Hour), State: "COMPLETED"}, OrgID: "physics", Unit: "Instance x"}
	files, err := Files([]Record{want})
	require.NoError(t, err)
	for _, data := range files {
		got, err := Decode(bytes.TrimSuffix(data, []byte("\n")))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, line := range []string{"", "{}", "[]", "no json", `{"cluster":"c","job_id":-1}`, `{"cluster":"c","job_id":7,"submitted_at":"2026-11-01T12:00:00Z"}`} {
		_, err := Decode([]byte(line))
		require.Error(t, err, line)
	}
}
