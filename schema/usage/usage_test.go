package usage

import (
	"bytes"
	"fmt"
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
	return Job{Cluster: "c", JobID: id, Submitted: end.Add(-2 * time.Hour), Started: end.Add(-time.Hour), Ended: end, State: "COMPLETED",
		User: "eve", ProjectID: project, Resources: Resources{CPUs: 2, GPUs: 1}}
}

// minute returns a job with one CPU that ran for a minute.
func minute(cluster string, at time.Time) Job {
	return Job{Cluster: cluster, JobID: 1, Submitted: at, Started: at, Ended: at.Add(time.Minute), Resources: Resources{CPUs: 1}}
}

// used adds to a record the day and the amounts of its job.
func used(r Record) Record {
	r.Day, r.Amounts = r.StartDay(), r.Job.Used()
	return r
}

// A record has two anchors: the project whose account a job used, and the unit with its owner
// (requirement D6).
func TestRecordsHaveTwoAnchors(t *testing.T) {
	unit := Record{UnitID: "u-1", AppSlug: "slurm", OperatingMode: "platform_managed", ControlPlaneScope: "platform",
		RuntimeBackend: "slurm", CorrelationID: "x"}
	names := map[string]Attachment{"physics.lhc": {Name: "lhc-terms", BillingPolicyRef: "internal"}, "physics.ligo": {}}
	of := func(key schema.Key, project string) Record {
		return New(key, unit, job(1, "2026-11-01T10:00:00Z", project), names)
	}

	shared := of(schema.Key{Kind: schema.KindSharedRuntime, Name: "campus"}, "physics.lhc")
	require.Equal(t, []string{"", "SharedRuntime campus", "physics", "physics.lhc", "campus/lhc-terms"},
		[]string{shared.OwnerID, shared.Unit, shared.OrgID, shared.ProjectID, strings.TrimPrefix(shared.AttachmentID, "/")})
	require.Equal(t, []string{"u-1", "slurm", "platform_managed", "platform", "slurm", "x"},
		[]string{shared.UnitID, shared.AppSlug, shared.OperatingMode, shared.ControlPlaneScope, shared.RuntimeBackend,
			shared.CorrelationID})

	require.Equal(t, "internal", shared.BillingPolicyRef)
	require.Empty(t, of(schema.Key{Kind: schema.KindSharedRuntime, Name: "campus"}, "physics.ligo").AttachmentID)

	own := of(schema.InstanceKey("bio", "genes", "train"), "")
	require.Equal(t, []string{"bio", "Instance bio.genes/train", "bio", "bio.genes", ""},
		[]string{own.OwnerID, own.Unit, own.OrgID, own.ProjectID, own.AttachmentID})

	owners := of(schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "pool"}, "")
	require.Equal(t, []string{"physics", "physics", ""}, []string{owners.OwnerID, owners.OrgID, owners.ProjectID})
}

// The same records have the same files in any order; a large day is split between records. A day without
// records has no file.
func TestFilesOfADay(t *testing.T) {
	unit := schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "pool"}
	d := Day{Tenant: "physics", Cluster: "c", Date: "2026-11-01"}
	for _, id := range []int{2, 1, 3} {
		d.Records = append(d.Records, New(unit, Record{}, job(id, "2026-11-01T12:00:00Z", "physics.lhc"), nil))
	}
	files, err := d.Files()
	require.NoError(t, err)
	require.Len(t, files, 1)
	slices.Reverse(d.Records)
	again, err := d.Files()
	require.NoError(t, err)
	require.Equal(t, files, again)
	require.Equal(t, []string{"usage/2026-11-01/physics/c.jsonl", "usage/2026-11-01/physics/c.2.jsonl"}, []string{d.Path(1), d.Path(2)})
	none := Day{Cluster: "c", Date: "2026-11-01"}
	require.Equal(t, "usage/2026-11-01/_platform/c.jsonl", none.Path(1))
	files, err = none.Files()
	require.NoError(t, err)
	require.Empty(t, files)

	d.Records = nil
	for id := range 20_000 {
		d.Records = append(d.Records, New(unit, Record{}, job(id+1, "2026-11-01T12:00:00Z", "physics.lhc"), nil))
	}
	files, err = d.Files()
	require.NoError(t, err)
	require.Greater(t, len(files), 1)
	seen := map[Run]bool{}
	for _, data := range files {
		require.LessOrEqual(t, len(data), MaxFile)
		for line := range bytes.Lines(data) {
			r, err := Decode(line)
			require.NoError(t, err)
			require.False(t, seen[r.Run()])
			seen[r.Run()] = true
		}
	}
	require.Len(t, seen, len(d.Records))
}

// A run counts once as a job, and a clock that was wrong makes no time negative.
func TestSumsCountEachRunOnce(t *testing.T) {
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	run := func(id int, seconds int, project string) Record {
		return used(Record{Unit: "Instance x", Job: Job{Cluster: "c", JobID: id, Submitted: start, Started: start, ProjectID: project,
			Ended: start.Add(time.Duration(seconds) * time.Second), Resources: Resources{CPUs: 2, GPUs: 1, MemoryMiB: 512, Billing: 3}}})
	}
	again := run(1, 5, "a.b")
	again.Submitted = start.Add(time.Second) // another run of the same id
	next := run(1, 0, "a.b")                 // the next day of the first run
	next.Day, next.Started, next.Ended = "2026-11-02", start.AddDate(0, 0, 1), start.AddDate(0, 0, 1).Add(10*time.Second)
	next.Amounts = next.Job.Used()
	records := []Record{run(1, 10, "a.b"), again, next, run(2, -3, "a.c")} // the last one used nothing
	require.Equal(t, []Sum{{
		Account: Account{Month: "2026-11", ProjectID: "a.b", Unit: "Instance x", Kind: KindJobs, Rates: "default"}, Jobs: 2,
		Amounts: Amounts{CPUSeconds: 50, GPUSeconds: 25, MemoryMiBSeconds: 12800, BillingSeconds: 75},
	}}, Sums(records, &Terms{}))
	first, other := run(3, 1, "a.b"), run(4, 2, "a.b")
	first.User, other.User = "bob", "ann"
	var users []string
	for _, sum := range Sums(append(records, first, other), &Terms{Users: true}) {
		users = append(users, fmt.Sprint(sum.ProjectID, " ", sum.User, " ", sum.Jobs, " ", sum.CPUSeconds))
	}
	require.Equal(t, []string{"a.b  2 50", "a.b ann 1 4", "a.b bob 1 2"}, users)
}

// A correction counts in the month that learnt it, by the prices of the day that it corrects, and does not count as a job.
func TestCorrectionsCount(t *testing.T) {
	start := time.Date(2026, 10, 31, 12, 0, 0, 0, time.UTC)
	first := used(Record{Job: minute("c", start)})
	late := first
	late.Day, late.Corrects, late.Amounts = "2026-11-02", "2026-10-31", Amounts{CPUSeconds: -20}
	card := func(price schema.Price, replaces, from string) *schema.RateCard {
		return &schema.RateCard{Spec: schema.RateCardSpec{Currency: "EUR", Prices: schema.Prices{CPUHour: price}, Replaces: replaces,
			From: from}}
	}
	cards := map[string]*schema.RateCard{"default": card(3600, "", ""), "later": card(7200, "default", "2026-11-01")}
	var got []string
	for _, s := range Sums([]Record{first, late}, &Terms{Cards: cards}) {
		got = append(got, fmt.Sprint(s.Month, " ", s.Rates, " ", s.Jobs, " ", s.CPUSeconds, " ", s.Price.Millionths))
	}
	require.Equal(t, []string{"2026-10 default 1 60 60", "2026-11 default 0 -20 -20"}, got)
}

// Decode parses the lines of files and refuses every other line.
func TestDecodeReadsWhatFilesHave(t *testing.T) {
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	want := used(Record{OrgID: "physics", Unit: "Instance x", Job: minute("c", at)})
	want.State, want.Billing = "COMPLETED", 2
	d := Day{Cluster: "c", Date: want.Day, Records: []Record{want}}
	files, err := d.Files()
	require.NoError(t, err)
	for _, data := range files {
		got, err := Decode(bytes.TrimSuffix(data, []byte("\n")))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, line := range []string{"", "{}", "[]", "no json", `{"cluster":"c","job_id":-1}`,
		`{"day":"2026-11-01","cluster":"c","job_id":7,"submitted_at":"2026-11-01T12:00:00Z"}`} {
		_, err := Decode([]byte(line))
		require.Error(t, err, line)
	}
}

// A run is split at the midnights in UTC, with the suspension of each day; accounting charges no CPUs
// for a suspension, and memory and GPUs for all the time.
func TestRunsAreSplitByDay(t *testing.T) {
	start := time.Date(2026, 10, 31, 22, 0, 0, 0, time.UTC)
	run := Job{Cluster: "c", JobID: 1, Submitted: start, Started: start, Ended: start.Add(30 * time.Hour), Suspended: 3000,
		State: "COMPLETED", Resources: Resources{CPUs: 2, GPUs: 1}}
	var asked []string
	parts, err := Days(run, func(from, to time.Time) (int64, error) {
		asked = append(asked, from.Format(time.DateTime)+" "+to.Format(time.DateTime))
		return 1000, nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"2026-10-31 22:00:00 2026-11-01 00:00:00", "2026-11-01 00:00:00 2026-11-02 00:00:00"}, asked)
	var got []string
	var records []Record
	for _, p := range parts {
		got = append(got, fmt.Sprint(p.StartDay(), " ", p.Elapsed(), " ", p.Held(), " ", p.State))
		records = append(records, used(Record{Job: p}))
	}
	require.Equal(t, []string{"2026-10-31 6200 7200 ", "2026-11-01 85400 86400 ", "2026-11-02 13400 14400 COMPLETED"}, got)
	require.Equal(t, []Sum{
		{Account: Account{Month: "2026-10", Kind: KindJobs, Rates: "default"}, Jobs: 1,
			Amounts: Amounts{CPUSeconds: 2 * 6200, GPUSeconds: 7200}},
		{Account: Account{Month: "2026-11", Kind: KindJobs, Rates: "default"}, Jobs: 1, Closed: true,
			Amounts: Amounts{CPUSeconds: 2 * (85400 + 13400), GPUSeconds: 86400 + 14400}},
	}, Sums(records, &Terms{Closed: func(_, _, month string) bool { return month == "2026-11" }}))

	run.Suspended, run.Ended = 0, start.Add(2*time.Hour) // to the midnight: that day's only
	parts, err = Days(run, nil)
	require.NoError(t, err)
	require.Equal(t, []Job{run}, parts)
}

// Reading a written closing returns the same closing. Reading any other file is an error.
func TestClosingsAreFiles(t *testing.T) {
	want := Closing{Cluster: "c", Day: "2026-10-31", Unit: "Instance a.b/c", OwnerID: "a", AppSlug: "slurm", Records: 3, CPUs: 10,
		Accounted: 12, Projects: []string{"a.b"}, Unused: &Unused{IdleCPUs: 1, DownGPUs: 2}}
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
	card := &schema.RateCard{Spec: schema.RateCardSpec{Currency: "EUR", Prices: schema.Prices{
		CPUHour: 3600, MemoryHour: 3600 * 1024, OtherGPU: 7200, GPUHours: []schema.GPUPrice{{Type: "a100", Price: 36000}},
		BillingHour: 10800}}}
	card.Key.Name = "lab"
	of := func(id int, change func(*Record)) Record {
		r := Record{Job: Job{Cluster: "c", JobID: id, Submitted: start, Started: start, Ended: start.Add(100 * time.Second),
			ProjectID: "a.b"}}
		change(&r)
		return used(r)
	}
	price := func(cards map[string]*schema.RateCard, records ...Record) *Price {
		return Sums(records, &Terms{Cards: cards})[0].Price
	}
	always := map[string]*schema.RateCard{"default": card}
	cpus := of(1, func(r *Record) { r.CPUs, r.Suspended = 2, 40 })
	memory := of(2, func(r *Record) { r.MemoryMiB, r.Suspended = 3, 40 })
	gpus := of(3, func(r *Record) { r.GPUs, r.GPUType = 1, "a100" })
	others := of(4, func(r *Record) { r.GPUs = 1 })
	weighed := of(5, func(r *Record) { r.Billing = 4 })
	for want, r := range map[int64]Record{120: cpus, 300: memory, 1000: gpus, 200: others, 1200: weighed} {
		require.Equal(t, &Price{Currency: "EUR", Millionths: want}, price(always, r))
	}
	require.Equal(t, int64(1620), price(always, cpus, memory, gpus, others).Millionths)
	require.Nil(t, price(nil, cpus))

	// The first item of by whose names are those of the job replaces all prices.
	by := func(queue, partition, qos string, price schema.Price) schema.PricesBy {
		return schema.PricesBy{Queue: queue, Partition: partition, QoS: qos, Prices: schema.Prices{CPUHour: price * 3600}}
	}
	card.Spec.By = []schema.PricesBy{by("", "gpu", "high", 2), by("", "gpu", "", 3), by("short", "", "", 4), by("", "", "high", 5)}
	for want, place := range map[int64]Place{
		240: {Partition: "gpu", QoS: "high"}, 360: {Queue: "short", Partition: "gpu", QoS: "low"}, 480: {Queue: "short", QoS: "high"},
		600: {QoS: "high"}, 120: {Queue: "long", Partition: "cpu", QoS: "low"},
	} {
		r := cpus
		r.Place, r.MemoryMiBSeconds = place, 0
		require.Equal(t, want, price(always, r).Millionths, "%v", place)
	}
	card.Spec.By = nil
	named := cpus
	named.BillingPolicyRef = "lab"
	require.Equal(t, int64(120), price(always, named).Millionths, "no card lab: the default one")
	require.NotNil(t, price(map[string]*schema.RateCard{"lab": card}, named))

	// Another card within a month has a line of its own.
	both := []Record{named, of(2, func(r *Record) { r.CPUs = 1 })}
	other := &schema.RateCard{Spec: schema.RateCardSpec{Currency: "EUR", Prices: schema.Prices{CPUHour: 36}}}
	lines := Sums(both, &Terms{Cards: map[string]*schema.RateCard{"lab": card, "default": other}})
	require.Len(t, lines, 2)
	require.Equal(t, []any{"default", int64(1), "lab", int64(120)},
		[]any{lines[0].Rates, lines[0].Price.Millionths, lines[1].Rates, lines[1].Price.Millionths})

	card.Spec = schema.RateCardSpec{Currency: "EUR", Prices: schema.Prices{CPUHour: 1}} // a third of a millionth each: rounded once
	third := func(id int) Record { return of(id, func(r *Record) { r.CPUs = 12 }) }
	require.Equal(t, int64(0), price(always, third(1)).Millionths)
	require.Equal(t, int64(1), price(always, third(1), third(2)).Millionths)
	require.Equal(t, int64(1), price(always, third(1), third(2), third(3)).Millionths)
}

// The rate card of a record is the one that it names, if that exists and applies to its tenant, and otherwise the
// default one; on days from the day of a replacement on it is the replacement. A closing goes by the same rule.
func TestRateCardOfATenantAndADay(t *testing.T) {
	card := func(replaces, from string, tenants ...string) *schema.RateCard {
		return &schema.RateCard{Spec: schema.RateCardSpec{Currency: "EUR", Replaces: replaces, From: from, AppliesTo: tenants,
			Shared: &schema.SharedCost{Split: schema.SplitNone, ControlPlaneDay: 1}}}
	}
	terms := Terms{Cards: map[string]*schema.RateCard{
		"default": card("", ""), "cheap": card("", "", "chem"), "free": card("", ""),
		"default-b": card("default", "2026-11-10"), "default-c": card("default", "2026-11-20"),
		"default-d":    card("default-c", "2026-11-20"),
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
		r := used(Record{Job: minute("c", at), OrgID: c.tenant, BillingPolicyRef: c.ref})
		terms.Closings = []Closing{{Cluster: "c", Day: c.day, OwnerID: c.tenant, BillingPolicyRef: c.ref, Accounted: 1, Unused: &Unused{}}}
		for _, sum := range Sums([]Record{r}, &terms) {
			require.Equal(t, c.want, sum.Rates, "%v %s", c, sum.Kind)
			require.NotNil(t, sum.Price)
		}
	}
	r := used(Record{Job: minute("c", time.Unix(0, 0)), OrgID: "physics", BillingPolicyRef: "cheap"})
	require.Nil(t, Sums([]Record{r}, &Terms{Cards: map[string]*schema.RateCard{"cheap": card("", "", "chem")}})[0].Price, "no default card")
}

// Sums of days have a line for each project. A run counts on each of its days, and a correction only in the amounts.
func TestDaySums(t *testing.T) {
	at := time.Date(2026, 10, 31, 12, 0, 0, 0, time.UTC)
	rec := func(id int, project string, hours time.Duration) Record {
		return used(Record{Job: Job{Cluster: "c", JobID: id, Submitted: at, Started: at, Ended: at.Add(hours * time.Hour), ProjectID: project,
			Resources: Resources{CPUs: 2}}})
	}
	next, correction := rec(1, "a.x", 1), rec(4, "a.x", 2)
	next.Day = "2026-11-01"
	correction.Corrects, correction.CPUSeconds = "2026-10-30", -3600
	require.Equal(t, []DaySum{
		{Day: "2026-10-31", Closed: true, Jobs: 1, Amounts: Amounts{CPUSeconds: 7200}},
		{Day: "2026-10-31", ProjectID: "a.x", Closed: true, Jobs: 2, Amounts: Amounts{CPUSeconds: 4*7200 - 3600}},
		{Day: "2026-11-01", ProjectID: "a.x", Closed: true, Jobs: 1, Amounts: Amounts{CPUSeconds: 7200}},
	}, DaySums([]Record{next, rec(1, "a.x", 1), rec(2, "a.x", 3), correction, rec(3, "", 1), rec(5, "", 0)}, true))
	require.Empty(t, DaySums(nil, false))
}
