package usage

import (
	"bytes"
	"encoding/json"
	"fmt"
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
	names := map[string]Attachment{"physics.lhc": {Name: "lhc-terms", BillingPolicyRef: "internal"}, "physics.ligo": {}}
	of := func(key schema.Key, project string) Record {
		return New(key, unit, job(1, "2026-11-01T10:00:00Z", project), names)
	}

	shared := of(schema.Key{Kind: schema.KindSharedRuntime, Name: "campus"}, "physics.lhc")
	require.Equal(t, []string{"", "SharedRuntime campus", "physics", "physics.lhc", "campus/lhc-terms"},
		[]string{shared.OwnerID, shared.Unit, shared.OrgID, shared.ProjectID, strings.TrimPrefix(shared.AttachmentID, "/")})
	require.Equal(t, []string{"u-1", "slurm", "platform_managed", "platform", "slurm", "x"},
		[]string{shared.UnitID, shared.AppSlug, shared.OperatingMode, shared.ControlPlaneScope, shared.RuntimeBackend, shared.CorrelationID})

	require.Equal(t, "internal", shared.BillingPolicyRef)
	require.Empty(t, of(schema.Key{Kind: schema.KindSharedRuntime, Name: "campus"}, "physics.ligo").AttachmentID)

	own := of(schema.InstanceKey("bio", "genes", "train"), "")
	require.Equal(t, []string{"bio", "Instance bio.genes/train", "bio", "bio.genes", ""}, []string{own.OwnerID, own.Unit, own.OrgID, own.ProjectID, own.AttachmentID})

	owners := of(schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "pool"}, "")
	require.Equal(t, []string{"physics", "physics", ""}, []string{owners.OwnerID, owners.OrgID, owners.ProjectID})
}

// The same records have the same files in any order, by the day of the use in UTC and by tenant;
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
	require.Equal(t, []string{"usage/2026-11-01/_platform", "usage/2026-11-01/bio", "usage/2026-11-01/physics"}, dirs)
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
	s.Add(run(2, -3, "a.c")) // it used nothing
	require.Equal(t, []Sum{
		{Account: Account{Month: "2026-11", ProjectID: "a.b", Unit: "Instance x", Kind: KindJobs, Rates: "default"}, Jobs: 2, CPUSeconds: 30, GPUSeconds: 15, MemoryMiBSeconds: 7680},
	}, s.All(&Terms{}))
	first, other := run(3, 1, "a.b"), run(4, 2, "a.b")
	first.User, other.User = "bob", "ann"
	s.Add(first)
	s.Add(other)
	var users []string
	for _, sum := range s.All(&Terms{Users: true}) {
		users = append(users, fmt.Sprint(sum.ProjectID, " ", sum.User, " ", sum.Jobs, " ", sum.CPUSeconds))
	}
	require.Equal(t, []string{"a.b  2 30", "a.b ann 1 4", "a.b bob 1 2"}, users)
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

// A run is split at the midnights in UTC, with the suspension of each day; accounting charges no CPUs
// for a suspension, and memory and GPUs for all the time.
func TestRunsAreSplitByDay(t *testing.T) {
	start := time.Date(2026, 10, 31, 22, 0, 0, 0, time.UTC)
	run := Job{Cluster: "c", JobID: 1, Submitted: start, Started: start, Ended: start.Add(30 * time.Hour), Suspended: 3000, State: "COMPLETED", CPUs: 2, GPUs: 1}
	var asked []string
	parts, err := Days(run, func(from, to time.Time) (int64, error) {
		asked = append(asked, from.Format(time.DateTime)+" "+to.Format(time.DateTime))
		return 1000, nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"2026-10-31 22:00:00 2026-11-01 00:00:00", "2026-11-01 00:00:00 2026-11-02 00:00:00"}, asked)
	var got []string
	sums := NewSums()
	for _, p := range parts {
		got = append(got, fmt.Sprint(p.Day(), " ", p.Elapsed(), " ", p.Held(), " ", p.State))
		sums.Add(Record{Job: p})
	}
	require.Equal(t, []string{"2026-10-31 6200 7200 ", "2026-11-01 85400 86400 ", "2026-11-02 13400 14400 COMPLETED"}, got)
	require.Equal(t, []Sum{
		{Account: Account{Month: "2026-10", Kind: KindJobs, Rates: "default"}, Jobs: 1, CPUSeconds: 2 * 6200, GPUSeconds: 7200},
		{Account: Account{Month: "2026-11", Kind: KindJobs, Rates: "default"}, Jobs: 1, CPUSeconds: 2 * (85400 + 13400), GPUSeconds: 86400 + 14400, Closed: true},
	}, sums.All(&Terms{Closed: func(_, _, month string) bool { return month == "2026-11" }}))

	run.Suspended, run.Ended = 0, start.Add(2*time.Hour) // to the midnight: that day's only
	parts, err = Days(run, nil)
	require.NoError(t, err)
	require.Equal(t, []Job{run}, parts)
}

// The record with the highest correction of a part counts, in any order.
func TestCorrectionsCount(t *testing.T) {
	start := time.Date(2026, 10, 31, 12, 0, 0, 0, time.UTC)
	first := Record{Job: Job{Cluster: "c", JobID: 1, Submitted: start, Started: start, Ended: start.Add(time.Minute), CPUs: 1}}
	second := first
	second.Ended, second.Correction = start.Add(2*time.Minute), 1
	for _, order := range [][]Record{{first, second}, {second, first}, {first, second, first}} {
		s := NewSums()
		for _, r := range order {
			s.Add(r)
		}
		require.Equal(t, int64(120), s.All(&Terms{})[0].CPUSeconds)
	}
}

// A closing is read as it was written, and nothing else is one.
func TestClosingsAreFiles(t *testing.T) {
	want := Closing{Cluster: "c", Day: "2026-10-31", Unit: "Instance a.b/c", OwnerID: "a", AppSlug: "slurm", Parts: 3, CPUs: 10, Accounted: 12, Projects: []string{"a.b"}, Unused: &Unused{IdleCPUs: 1, DownGPUs: 2}}
	path, data, err := want.File()
	require.NoError(t, err)
	require.Equal(t, "usage/closed/c/2026-10-31.json", path)
	got, err := DecodeClosing(data)
	require.NoError(t, err)
	require.Equal(t, want, got)
	for _, wrong := range []string{"", "{}", `{"cluster":"c","day":"today"}`, `{"day":"2026-10-31"}`} {
		_, err := DecodeClosing([]byte(wrong))
		require.Error(t, err, wrong)
	}
}

// A price is exact: CPUs without suspensions, memory and GPUs by type with them, in whole millionths of
// the currency that are rounded once a sum.
func TestPricesAreExact(t *testing.T) {
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	card := &schema.RateCard{Spec: schema.RateCardSpec{Currency: "EUR", CPUHour: 3600, MemoryHour: 3600 * 1024, OtherGPU: 7200, GPUHours: []schema.GPUPrice{{Type: "a100", Price: 36000}}}}
	card.Key.Name = "lab"
	of := func(id int, change func(*Record)) Record {
		r := Record{Job: Job{Cluster: "c", JobID: id, Submitted: start, Started: start, Ended: start.Add(100 * time.Second), ProjectID: "a.b"}}
		change(&r)
		return r
	}
	price := func(cards map[string]*schema.RateCard, records ...Record) *Price {
		s := NewSums()
		for _, r := range records {
			s.Add(r)
		}
		return s.All(&Terms{Cards: cards})[0].Price
	}
	always := map[string]*schema.RateCard{"default": card}
	cpus := of(1, func(r *Record) { r.CPUs, r.Suspended = 2, 40 })
	memory := of(2, func(r *Record) { r.MemoryMiB, r.Suspended = 3, 40 })
	gpus := of(3, func(r *Record) { r.GPUs, r.GPUType = 1, "a100" })
	others := of(4, func(r *Record) { r.GPUs = 1 })
	for want, r := range map[int64]Record{120: cpus, 300: memory, 1000: gpus, 200: others} {
		require.Equal(t, &Price{Currency: "EUR", Millionths: want}, price(always, r))
	}
	require.Equal(t, int64(1620), price(always, cpus, memory, gpus, others).Millionths)
	require.Nil(t, price(nil, cpus))
	named := cpus
	named.BillingPolicyRef = "lab"
	require.Equal(t, int64(120), price(always, named).Millionths, "no card lab: the default one")
	require.NotNil(t, price(map[string]*schema.RateCard{"lab": card}, named))

	// Another card within a month has a line of its own.
	both := NewSums()
	both.Add(named)
	both.Add(of(2, func(r *Record) { r.CPUs = 1 }))
	other := &schema.RateCard{Spec: schema.RateCardSpec{Currency: "EUR", CPUHour: 36}}
	lines := both.All(&Terms{Cards: map[string]*schema.RateCard{"lab": card, "default": other}})
	require.Len(t, lines, 2)
	require.Equal(t, []any{"default", int64(1), "lab", int64(120)}, []any{lines[0].Rates, lines[0].Price.Millionths, lines[1].Rates, lines[1].Price.Millionths})

	card.Spec = schema.RateCardSpec{Currency: "EUR", CPUHour: 1} // a third of a millionth each: rounded once
	third := func(id int) Record { return of(id, func(r *Record) { r.CPUs = 12 }) }
	require.Equal(t, int64(0), price(always, third(1)).Millionths)
	require.Equal(t, int64(1), price(always, third(1), third(2)).Millionths)
	require.Equal(t, int64(1), price(always, third(1), third(2), third(3)).Millionths)
}

// A record that was withdrawn is no job: neither a line nor a run comes of it.
func TestWithdrawnRecordsAreNoJobs(t *testing.T) {
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	of := func(id int, project string, seconds, correction int) Record {
		return Record{Job: Job{Cluster: "c", JobID: id, Submitted: start, Started: start, Ended: start.Add(time.Duration(seconds) * time.Second), CPUs: 1, ProjectID: project}, Correction: correction}
	}
	s := NewSums()
	for _, r := range []Record{of(1, "a.b", 10, 0), of(2, "a.b", 10, 0), of(2, "a.b", 0, 1), of(3, "a.c", 10, 0), of(3, "a.c", 0, 1)} {
		s.Add(r)
	}
	all := s.All(&Terms{})
	require.Len(t, all, 1)
	require.Equal(t, []any{"a.b", 1, int64(10)}, []any{all[0].ProjectID, all[0].Jobs, all[0].CPUSeconds})
}

// The rate card of a record is the one that it names, if that exists and applies to its tenant, and otherwise the
// default one; on days from the day of a replacement on it is the replacement. A closing goes by the same rule.
func TestRateCardOfATenantAndADay(t *testing.T) {
	card := func(replaces, from string, tenants ...string) *schema.RateCard {
		return &schema.RateCard{Spec: schema.RateCardSpec{Currency: "EUR", Replaces: replaces, From: from, AppliesTo: tenants, Shared: &schema.SharedCost{Split: schema.SplitNone, ControlPlaneDay: 1}}}
	}
	terms := Terms{Cards: map[string]*schema.RateCard{
		"default": card("", ""), "cheap": card("", "", "chem"), "free": card("", ""),
		"default-b": card("default", "2026-11-10"), "default-c": card("default", "2026-11-20"), "default-d": card("default-c", "2026-11-20"),
		"default-chem": card("default", "2026-11-25", "chem"), "cheap-b": card("cheap", "2026-11-30"),
	}}
	for _, c := range []struct{ ref, tenant, day, want string }{
		{"", "physics", "2026-11-09", "default"},
		{"", "physics", "2026-11-10", "default-b"},
		{"", "physics", "2026-11-19", "default-b"},
		{"default", "physics", "2026-11-26", "default-c"},
		{"", "chem", "2026-11-25", "default-chem"},
		{"cheap", "chem", "2026-11-29", "cheap"},
		{"cheap", "chem", "2026-11-30", "cheap-b"},
		{"cheap", "physics", "2026-11-09", "default"},
		{"cheap", "physics", "2026-11-30", "default-c"},
		{"cheap", "", "2026-11-09", "cheap"},
		{"none", "physics", "2026-11-11", "default-b"},
		{"free", "physics", "2026-11-30", "free"},
	} {
		at, err := time.Parse(time.DateOnly, c.day)
		require.NoError(t, err)
		s := NewSums()
		s.Add(Record{Job: Job{Cluster: "c", JobID: 1, Submitted: at, Started: at, Ended: at.Add(time.Minute), CPUs: 1}, OrgID: c.tenant, BillingPolicyRef: c.ref})
		terms.Closings = []Closing{{Cluster: "c", Day: c.day, OwnerID: c.tenant, BillingPolicyRef: c.ref, Accounted: 1, Unused: &Unused{}}}
		for _, sum := range s.All(&terms) {
			require.Equal(t, c.want, sum.Rates, "%v %s", c, sum.Kind)
			require.NotNil(t, sum.Price)
		}
	}
	s := NewSums()
	s.Add(Record{Job: Job{Cluster: "c", JobID: 1, Submitted: time.Unix(0, 0), Started: time.Unix(0, 0), Ended: time.Unix(60, 0), CPUs: 1}, OrgID: "physics", BillingPolicyRef: "cheap"})
	require.Nil(t, s.All(&Terms{Cards: map[string]*schema.RateCard{"cheap": card("", "", "chem")}})[0].Price, "no default card")
}
