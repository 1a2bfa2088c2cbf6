package slurm

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

var update = flag.Bool("update", false, "rewrite the expected files of testdata")

// example is a record with all fields that are rendered.
func example() record {
	gpu := []schema.GPU{{Type: "a100", Count: 2, Devices: "/dev/nvidia[0-1]"}}
	rec := record{
		Format: recordFormat, Cluster: "physics_lattice_train_eba45360", Hostname: "dev-lab-1",
		Ports: cluster.Ports{Slurmctld: 22710, Slurmdbd: 22711},
		Unit: plan.Unit{
			Effective: schema.EffectiveUnit{
				Key:   schema.InstanceKey("physics", "lattice", "train"),
				Users: []schema.UnixUser{{Name: "alice", UID: 2001}, {Name: "bob", UID: 2002}},
				Config: json.RawMessage(`{"partitions":[{"name":"main"},{"name":"quick","max_time_minutes":30,"default":true}],
					"scheduler":{"interval_seconds":60},"identity":"managed"}`),
			},
			Members: []plan.Member{
				{Name: "controller-0", Role: "controller", ControlPlane: true, Node: "dev-lab-1", Address: "10.77.0.10"},
				{Name: "worker-0", Role: "worker", Node: "dev-gpu-1", Address: "10.77.0.11", CPUs: 4, MemoryMiB: 8000, GPUs: gpu},
			},
		},
	}
	return rec
}

func TestRenderedFiles(t *testing.T) {
	const name = "testdata/stack.txtar"
	rec := example()
	got := &txtar.Archive{Comment: []byte("The files of one control stack, as rendered.\n")}
	all, err := files(&rec)
	require.NoError(t, err)
	for _, op := range writeOps(all) {
		got.Files = append(got.Files, txtar.File{Name: strings.TrimPrefix(op.Write.Path, "/"), Data: op.Write.Data})
	}
	if *update {
		require.NoError(t, os.WriteFile(name, txtar.Format(got), 0o644))
	}
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, string(want), string(txtar.Format(got)))

	// berth-host takes every one of them.
	for _, op := range writeOps(all) {
		require.NoError(t, profile.Profile().CheckMake(runtimes.Making{
			Kind: "file", Path: op.Write.Path, Data: op.Write.Data, Mode: op.Write.Mode, Owner: op.Write.Owner, Group: op.Write.Group,
		}), op.Write.Path)
	}

	again, err := files(&rec)
	require.NoError(t, err)
	require.Equal(t, all, again, "the same record renders to the same bytes")
}

// No value can become another line, comment or key.
func TestRenderRefusesInjection(t *testing.T) {
	hostile := []string{"x\nInclude /etc/shadow", "x # y", "a=b", "x y", "\x00", "é", `x"y`, "x'y", "x\\", "x\ty", ""}
	for field, set := range map[string]func(*record, string){
		"hostname":  func(r *record, v string) { r.Hostname = v },
		"address":   func(r *record, v string) { r.Unit.Members[0].Address = v },
		"cluster":   func(r *record, v string) { r.Cluster = v },
		"user":      func(r *record, v string) { r.Unit.Effective.Users[0].Name = v },
		"node":      func(r *record, v string) { r.Unit.Members[1].Node = v },
		"gpu type":  func(r *record, v string) { r.Unit.Members[1].GPUs[0].Type = v },
		"devices":   func(r *record, v string) { r.Unit.Members[1].GPUs[0].Devices = v },
		"partition": func(r *record, v string) { r.Unit.Effective.Config = partitionNamed(v) },
	} {
		for _, v := range hostile {
			rec := example()
			set(&rec, v)
			_, err := files(&rec)
			require.Error(t, err, "%s %q", field, v)
		}
	}
}

func partitionNamed(name string) json.RawMessage {
	raw, err := json.Marshal(map[string]any{"partitions": []any{map[string]any{"name": name}}})
	if err != nil {
		panic(err)
	}
	return raw
}

func TestClusterNames(t *testing.T) {
	seen := map[string]bool{}
	for _, key := range []schema.Key{
		schema.InstanceKey("physics", "lattice", "train"),
		schema.InstanceKey("physics", "lattice-train", "x"),
		schema.InstanceKey("physics-lattice", "train", "x"),
		schema.InstanceKey("0tenant", "p", "i"),
		schema.InstanceKey(strings.Repeat("t", 40), strings.Repeat("p", 40), strings.Repeat("i", 40)),
		schema.InstanceKey(strings.Repeat("t", 40), strings.Repeat("p", 40), strings.Repeat("j", 40)),
	} {
		name := cluster.Name(key)
		require.Regexp(t, `^[a-z][a-z0-9_]{0,39}$`, name)
		require.False(t, seen[name], name)
		seen[name] = true
		require.NotEqual(t, workerRecordPath, "/var/lib/berth/instances/"+name+".json")
	}
	require.Equal(t, "physics_lattice_train_eba45360", cluster.Name(schema.InstanceKey("physics", "lattice", "train")))
}

func TestPortsAreUniqueOnAHost(t *testing.T) {
	var others []record
	used := map[int]bool{}
	for i := range 300 {
		p, err := choosePorts(cluster.Name(schema.InstanceKey("t", "p", strings.Repeat("x", i%40+1))), others)
		require.NoError(t, err)
		for _, port := range []int{p.Slurmctld, p.Slurmdbd} {
			require.False(t, used[port], "port %d twice", port)
			require.True(t, port >= cluster.FirstPort && port <= cluster.LastPort)
			used[port] = true
		}
		others = append(others, record{Ports: p})
	}
	again, err := choosePorts("t_p_x", nil)
	require.NoError(t, err)
	same, err := choosePorts("t_p_x", nil)
	require.NoError(t, err)
	require.Equal(t, again, same)
	var all []record
	for p := cluster.FirstPort; p < cluster.LastPort; p += 2 {
		all = append(all, record{Ports: cluster.Ports{Slurmctld: p, Slurmdbd: p + 1}})
	}
	_, err = choosePorts("t_p_x", all)
	require.ErrorContains(t, err, "no free ports")
}

func TestRecordRoundTrip(t *testing.T) {
	rec := example()
	rec.setJoined(rec.Unit.Members[1])
	rec.setFound("dev-gpu-1", twoByEightByTwo)
	rec.Files = rec.input()
	got, err := decodeRecord(rec.encode())
	require.NoError(t, err)
	for _, r := range []*record{&got, &rec} { // indented on the way
		r.Unit.Effective.Config, r.Files.Unit.Effective.Config = nil, nil
	}
	require.Equal(t, rec, got)
	rec.Format = "berth.slurm/v9"
	_, err = decodeRecord(rec.encode())
	require.ErrorContains(t, err, "another version")
}
