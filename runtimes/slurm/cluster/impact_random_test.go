package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// impactsFile names a file for the impacts and files of 10,000 random changes: those of two builds can be compared to the byte.
const impactsFile = "BERTH_IMPACTS"

// The impact of a change and the files of both sides depend on the units alone, and no change has no impact.
func TestImpactOfRandomChanges(t *testing.T) {
	count, out := 300, &strings.Builder{}
	if os.Getenv(impactsFile) != "" {
		count = 10_000
	}
	d := unitDraw{rand.New(rand.NewPCG(7, 0))}
	rendered := 0
	for range count {
		before := d.unit()
		after := d.changed(before)
		of := d.declaration(before, after)
		first := d.report(of, before, after)
		require.Equal(t, first, d.report(of, before, after))
		if strings.Contains(first, "slurm.conf") {
			rendered++
		}
		same := Rules{}.Impact(plan.Configure, "", &before, &before)
		require.Empty(t, same.Differences, "%+v", same)
		require.Empty(t, same.Restarts)
		require.Empty(t, same.Jobs)
		out.WriteString(first)
	}
	require.Greater(t, rendered, count*3/4, "most of the drawn units have to be valid")
	if file := os.Getenv(impactsFile); file != "" {
		require.NoError(t, os.WriteFile(file, []byte(out.String()), 0o600))
	}
}

// unitDraw draws units.
type unitDraw struct{ *rand.Rand }

// declaration returns the input for the cluster of after while workers, partitions and projects of before have not left.
func (d unitDraw) declaration(before, after plan.Unit) Declaration {
	of := Declaration{
		Name: Name(before.Effective.Key), Unit: &after, JoinedWorkers: JoinedWorkers{Joined: d.some(before.Members)},
		At: ControlHost{Hostname: "ctl", Ports: Ports{Slurmctld: 6820, Slurmdbd: 6821}, FirstJob: 1000 * d.IntN(2)},
	}
	for _, m := range before.Members {
		if d.or(3) {
			if of.Found == nil {
				of.Found = map[string]schema.Shape{}
			}
			of.Found[m.Node] = schema.Shape{Sockets: 1 + d.IntN(2), CoresPerSocket: 4, ThreadsPerCore: 1 + d.IntN(2)}
		}
	}
	if set, err := Parse(before.Effective.Config); err == nil && d.or(2) {
		of.Leaving = set.Partitions[:1]
	}
	if d.or(2) {
		of.Detaching, of.People = before.Effective.Attachments, before.Effective.Users
	}
	return of
}

// report has the impact of each verb, the files, the accounting and the reservations.
func (d unitDraw) report(of Declaration, before, after plan.Unit) string {
	var out strings.Builder
	for _, verb := range []plan.Verb{
		plan.Create, plan.Configure, plan.Leave, plan.Drain, plan.Replace, plan.Remove, plan.Start, plan.Restart, plan.Stop, plan.Delete,
		plan.Cordon, plan.Label, plan.AcceptLoss, plan.AbandonUsage,
	} {
		raw, err := json.Marshal(Rules{}.Impact(verb, "worker-0", &before, &after))
		fmt.Fprintln(&out, verb, string(raw), err)
	}
	var all map[string]File
	c, err := New(of)
	if err == nil {
		all, err = c.Files()
	}
	raw := map[string]string{}
	for path, f := range all {
		raw[path] = fmt.Sprintf("%o %s %s", f.Mode, f.Owner, f.Data)
	}
	text, _ := json.Marshal(raw) // plain data, with sorted keys
	fmt.Fprintln(&out, string(text), err)
	if c == nil {
		return out.String()
	}
	tree, err := c.Accounting()
	fmt.Fprintf(&out, "%s %v\n%+v\n", tree.LoadFile(), err, c.WantedReservations(time.Unix(1_800_000_000, 0)))
	return out.String()
}

func (d unitDraw) or(n int) bool { return d.IntN(n) == 0 }

func (d unitDraw) of(words ...string) string { return words[d.IntN(len(words))] }

func (d unitDraw) some(members []plan.Member) (out []plan.Member) {
	for _, m := range members {
		if !m.ControlPlane && d.or(2) {
			out = append(out, m)
		}
	}
	return out
}

// unit returns a unit, whose config is sometimes invalid.
func (d unitDraw) unit() plan.Unit {
	u := plan.Unit{Effective: schema.EffectiveUnit{
		Key:    schema.Key{Kind: schema.KindInstance, Tenant: "physics", Project: "lattice", Name: "train"},
		Config: d.config(),
	}}
	u.Effective.SoftwareVersion = d.of("22.05.8", "24.11.5", "26.05.1")
	u.Members = []plan.Member{{Name: "controller-0", Role: "controller", ControlPlane: true, Node: "ctl", Address: "10.0.0.1", CPUs: 2,
		MemoryMiB: 4000}}
	for i := range d.IntN(4) {
		u.Members = append(u.Members, d.worker(i))
	}
	for i := range d.IntN(3) {
		u.Effective.Users = append(u.Effective.Users, schema.UnixUser{Name: fmt.Sprintf("user%d", i), UID: 5000 + i})
	}
	if d.or(3) {
		u.Effective.OnJobs = &schema.OnJobs{CancelAfterSeconds: 60}
	}
	if d.or(3) {
		u.Effective.Key = schema.Key{Kind: schema.KindSharedRuntime, Name: "shared"}
		for i := range d.IntN(3) {
			u.Effective.Attachments = append(u.Effective.Attachments, d.attachment(i, u.Effective.Users))
		}
	}
	return u
}

func (d unitDraw) worker(i int) plan.Member {
	m := plan.Member{
		Name: fmt.Sprintf("worker-%d", i), Role: d.of("worker", "login"), Node: fmt.Sprintf("gpu-%d", i),
		Address: fmt.Sprintf("10.0.0.%d", 2+i),
		CPUs:    1 << d.IntN(4), MemoryMiB: 1000 * (1 + d.IntN(3)),
	}
	if d.or(2) {
		m.GPUs = []schema.GPU{{Type: d.of("a100", "h200"), Count: 2, Devices: "/dev/nvidia[0-1]"}}
	}
	return m
}

func (d unitDraw) attachment(i int, users []schema.UnixUser) schema.EffectiveAttachment {
	a := schema.EffectiveAttachment{ProjectID: fmt.Sprintf("physics.p%d", i), Name: fmt.Sprintf("p%d", i), Share: 1 + d.IntN(3),
		Priority: d.IntN(100)}
	for _, u := range users {
		if d.or(2) {
			a.Users = append(a.Users, u.Name)
		}
	}
	if d.or(2) {
		a.Guaranteed = schema.Amount{GPUs: d.IntN(3), CPUs: 1 + d.IntN(8)}
	}
	a.MaxGPUs, a.MaxRunningJobs, a.MaxWalltimeMinutes = d.IntN(3), d.IntN(5), 60*d.IntN(3)
	if d.or(4) {
		a.Queues = []string{d.of("main", "low", "nowhere")}
	}
	return a
}

// changed returns a unit with one part or several of another one.
func (d unitDraw) changed(u plan.Unit) plan.Unit {
	other := d.unit()
	other.Effective.Key = u.Effective.Key
	if u.Effective.Key.Kind != schema.KindSharedRuntime {
		other.Effective.Attachments = nil
	}
	for range 1 + d.IntN(2) {
		switch d.IntN(7) {
		case 0, 1:
			u.Effective.Config = other.Effective.Config
		case 2:
			u.Members = other.Members
		case 3:
			u.Effective.Users = other.Effective.Users
		case 4:
			u.Effective.Attachments = other.Effective.Attachments
		case 5:
			u.Effective.SoftwareVersion = other.Effective.SoftwareVersion
		default:
			u.Effective.OnJobs = other.Effective.OnJobs
		}
	}
	return u
}

// put puts one in n of the values into fields. values are drawn by name, as the order of a map is random.
func (d unitDraw) put(fields map[string]any, n int, values map[string]func() any) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if value := values[key](); d.or(n) {
			fields[key] = value
		}
	}
}

func (d unitDraw) config() json.RawMessage {
	c := map[string]any{"scheduler": map[string]any{"interval_seconds": 5 + d.IntN(3)}}
	by, hasQoS := d.of("none", "partition", "qos"), d.or(2)
	if by != "none" || d.or(2) {
		preemption := map[string]any{"by": by}
		if by != "none" {
			preemption["mode"], preemption["exempt_minutes"] = d.of("requeue", "cancel"), d.IntN(2)
		}
		c["preemption"] = preemption
	}
	if hasQoS {
		high := map[string]any{"name": "high", "priority": d.IntN(10)}
		if by == "qos" && d.or(2) {
			high["preempts"] = []string{"normal"}
		}
		if d.or(2) {
			high["users"] = []string{"user0"}
		}
		c["qos"] = []any{high, map[string]any{"name": "normal", "default": d.or(2), "max_time_minutes": 5 * d.IntN(4)}}
	}
	partitions := []any{}
	for i, name := range []string{"main", "low", "Fast"}[:1+d.IntN(3)] {
		p := map[string]any{"name": name}
		if i == 0 && d.or(2) {
			p["default"] = true
		}
		d.put(p, 5, map[string]func() any{
			"max_time_minutes": func() any { return 60 * (1 + d.IntN(3)) },
			"priority_tier":    func() any { return d.IntN(3) },
			"allow_accounts":   func() any { return []string{d.of("physics.p0", "physics.p1")} },
			"nodes":            func() any { return map[string]any{"names": []string{d.of("gpu-0", "gpu-1", "gpu-9")}} },
			"billing":          func() any { return map[string]any{"cpu": 1, "memory_gib": 2, "gpu": d.IntN(4)} },
		})
		if hasQoS {
			d.put(p, 4, map[string]func() any{
				"allow_qos": func() any { return []string{d.of("high", "normal")} }, "qos": func() any { return "high" },
			})
		}
		if by == "partition" && d.or(3) {
			p["preempt_mode"] = d.of("requeue", "off")
		}
		partitions = append(partitions, p)
	}
	c["partitions"] = partitions
	d.put(c, 3, map[string]func() any{
		"jobs": func() any {
			return map[string]any{"default_time_minutes": 10, "max_time_minutes": 60 * d.IntN(4), "gpu_defaults": d.of("share", "none"),
				"kill_wait_seconds": 30, "unkillable_step_seconds": 180}
		},
		"nodes": func() any { return map[string]any{"timeout_seconds": 60 + d.IntN(2), "return_to_service": d.IntN(3)} },
		"priority": func() any {
			return map[string]any{"type": d.of("basic", "multifactor"), "weights": map[string]any{"age": d.IntN(3), "qos": 100},
				"decay_half_life_hours": 24, "max_age_hours": 24}
		},
		"private_data": func() any { return []string{d.of("jobs", "usage")} },
		"topology": func() any {
			return map[string]any{"switches": []any{map[string]any{"name": "s1", "nodes": []string{d.of("gpu-0", "gpu-1", "gpu-9")}}}}
		},
		"account":     func() any { return d.of("staff", "Members") },
		"options":     func() any { return map[string]any{"MinJobAge": 60 + d.IntN(3), "MaxJobCount": 20_000} },
		"identity":    func() any { return d.of("managed", "external") },
		"confinement": func() any { return d.of("cgroup", "none") },
		"retention":   func() any { return map[string]any{"records_months": d.IntN(13), "usage_months": d.IntN(13)} },
		"reservations": func() any {
			return []any{map[string]any{"name": "upgrade", "start": fmt.Sprintf("2027-01-0%dT08:00:00Z", 1+d.IntN(3)),
				"duration_minutes": 60}}
		},
	})
	raw, _ := json.Marshal(c) // plain data
	return raw
}
