package slurm

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// siteConfig has every field of a config.
const siteConfig = `{
	"partitions": [
		{"name": "main", "default": true, "priority_tier": 10, "allow_accounts": ["members"], "allow_qos": ["normal"], "qos": "normal"},
		{"name": "gpu", "nodes": {"gpu_types": ["a100"]}, "max_time_minutes": 30, "preempt_mode": "off", "billing": {"cpu": 1, "memory_gib": 0, "gpu": 9}},
		{"name": "big", "nodes": {"roles": ["worker"], "names": ["dev-cpu-1", "dev-cpu-2"]}, "default_time_minutes": 120, "max_time_minutes": 2880},
		{"name": "none", "nodes": {"gpu_types": ["h100"]}, "priority_tier": 0}
	],
	"scheduler": {"interval_seconds": 60, "cycle_seconds": 60, "batch_delay_seconds": 3, "bf_max_job_test": 500, "default_queue_depth": 200, "max_rpc_cnt": 150},
	"jobs": {"default_time_minutes": 60, "max_time_minutes": 10080, "gpu_defaults": "share", "kill_wait_seconds": 30, "unkillable_step_seconds": 180,
		"billing": {"cpu": 4, "memory_gib": 1, "gpu": 32}},
	"nodes": {"timeout_seconds": 300, "return_to_service": 1},
	"priority": {"type": "multifactor", "weights": {"age": 1, "fairshare": 2, "job_size": 3, "partition": 4, "qos": 5}, "decay_half_life_hours": 168, "max_age_hours": 0},
	"preemption": {"by": "partition", "mode": "requeue", "exempt_minutes": 90},
	"private_data": ["jobs", "usage", "partitions"],
	"topology": {"switches": [
		{"name": "rack1", "nodes": ["dev-gpu-1", "gone-1"]}, {"name": "rack2", "nodes": ["gone-2"]}, {"name": "rack3", "nodes": ["dev-cpu-1"]},
		{"name": "hall", "switches": ["rack1", "rack2", "rack3"]}
	]},
	"options": {"MaxArraySize": 5000, "JobAcctGatherFrequency": "task=30"},
	"health_check": {"program": "check", "digest": "sha256:aa", "interval_seconds": 300, "nodes": "idle"},
	"job_programs": {"prolog": {"program": "before", "digest": "sha256:aa"}, "epilog": {"program": "after", "digest": "sha256:aa"}, "timeout_seconds": 120},
	"identity": "managed", "confinement": "cgroup"
}`

// siteRecord is a record with every field of a config and nodes of two shapes.
func siteRecord() record {
	rec := example()
	rec.Unit.Effective.Config = json.RawMessage(siteConfig)
	for i, name := range []string{"dev-cpu-1", "dev-cpu-2"} {
		rec.Unit.Members = append(rec.Unit.Members, plan.Member{
			Name: "worker-" + name, Role: "worker", Node: name, Address: "10.77.0.2" + string(rune('0'+i)), CPUs: 8, MemoryMiB: 24000,
		})
	}
	return rec
}

func TestRenderedFilesOfEveryField(t *testing.T) {
	const name = "testdata/site.txtar"
	rec := siteRecord()
	got := &txtar.Archive{Comment: []byte("The files of a control stack whose config has every field.\n")}
	all, err := files(&rec)
	require.NoError(t, err)
	for _, op := range writeOps(all) {
		got.Files = append(got.Files, txtar.File{Name: strings.TrimPrefix(op.Write.Path, "/"), Data: op.Write.Data})
		require.NoError(t, profile.Profile().CheckMake(runtimes.Making{
			Kind: "file", Path: op.Write.Path, Data: op.Write.Data, Mode: op.Write.Mode, Owner: op.Write.Owner, Group: op.Write.Group,
		}), op.Write.Path)
	}
	if *update {
		require.NoError(t, os.WriteFile(name, txtar.Format(got), 0o644))
	}
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, string(want), string(txtar.Format(got)))
}

func TestConfigRules(t *testing.T) {
	version := &schema.AppVersion{Spec: schema.AppVersionSpec{Version: "22.05.8", Manifest: schema.Manifest{
		Roles:     map[string]schema.ManifestRole{"controller": {ControlPlane: true}, "worker": {}},
		Artifacts: map[string]schema.ManifestArtifact{"check": {Digest: "sha256:aa"}},
	}}}
	for config, want := range map[string]string{
		siteConfig: "",
		`{"partitions":[{"name":"Mem128","allow_qos":["STD.q"]},{"name":"std.q"},{"name":"PAL1"},{"name":"2080ti"}],"qos":[{"name":"std.Q"}]}`: "",
		`{"account":"Phys_Lab.2","partitions":[{"name":"a","allow_accounts":["phys_lab.2"]}]}`:                                                 "",
		`{"account":"phys","partitions":[{"name":"a","allow_accounts":["members"]}]}`:                                                          `partitions[0].allow_accounts[0]: there is no account members: there is phys`,
		`{"account":"ROOT"}`:                                                                                                 `account: invalid name "root"`,
		`{"partitions":[{"name":"Mem"},{"name":"mem"}]}`:                                                                     `partitions[1].name: the partition mem is listed twice`,
		`{"partitions":[{"name":"DEFAULT"}]}`:                                                                                `partitions[0].name: invalid name "DEFAULT"`,
		`{"partitions":[{"name":"a,b"}]}`:                                                                                    `partitions[0].name: invalid name "a,b"`,
		`{"partitions":[{"name":"-a"}]}`:                                                                                     `partitions[0].name: invalid name "-a"`,
		`{"qos":[{"name":"Long"},{"name":"long"}]}`:                                                                          `qos[1].name: the QoS long is listed twice`,
		`{"qos":[{"name":"All"}]}`:                                                                                           `qos[0].name: invalid name "all"`,
		`{"qos":[{"name":"Normal"},{"name":"NORMAL"}]}`:                                                                      `qos[1].name: the QoS normal is listed twice`,
		`{"qos":[{"name":"x","users":["first.last"]}]}`:                                                                      "",
		`{"qos":[{"name":"x","users":["1001"]}]}`:                                                                            `qos[0].users[0]: "1001" is not the name of a user`,
		`{"partitions":[{"name":"a","default_time_minutes":60,"max_time_minutes":30}]}`:                                      `partitions[0].default_time_minutes: is 60, more than the partition's longest time, which is 30`,
		`{"partitions":[{"name":"a"},{"name":"b","preempt_mode":"off"}]}`:                                                    `partitions[1].preempt_mode: has no effect without preemption.by: partition`,
		`{"partitions":[{"name":"a","allow_qos":["normal","fast"]}]}`:                                                        `partitions[0].allow_qos[1]: there is no QoS fast: there is normal`,
		`{"partitions":[{"name":"a","qos":"fast"}]}`:                                                                         `partitions[0].qos: there is no QoS fast: there is normal`,
		`{"partitions":[{"name":"a","allow_accounts":["red"]}]}`:                                                             `partitions[0].allow_accounts[0]: there is no account red: there is members`,
		`{"partitions":[{"name":"a","nodes":{"roles":["wroker"]}}]}`:                                                         `partitions[0].nodes.roles[0]: the version has no role wroker for workers: there is worker`,
		`{"job_programs":{"prolog":{"program":"p","digest":"sha256:bb"},"timeout_seconds":60}}`:                              `job_programs.prolog.digest: no artifact of the version has this digest; declare the program in manifest.artifacts`,
		`{"job_programs":{"epilog":{"program":"../p","digest":"sha256:aa"},"timeout_seconds":60}}`:                           `job_programs: "/usr/local/libexec/berth-slurm/../p" is not allowed as Epilog`,
		`{"topology":{"switches":[{"name":"a"}]}}`:                                                                           `topology.switches[0]: a switch has either nodes or switches`,
		`{"topology":{"switches":[{"name":"a","switches":["b"]}]}}`:                                                          `topology.switches[0].switches[0]: there is no switch b`,
		`{"topology":{"switches":[{"name":"a","switches":["b"]},{"name":"b","switches":["a"]}]}}`:                            `topology.switches[0].switches: the switch a is below itself`,
		`{"topology":{"switches":[{"name":"a","nodes":["n"]},{"name":"b","nodes":["n"]}]}}`:                                  `topology.switches[1].nodes[0]: n is below the switch a already`,
		`{"topology":{"switches":[{"name":"a","switches":["c"]},{"name":"b","switches":["c"]},{"name":"c","nodes":["n"]}]}}`: `topology.switches[1].switches[0]: c is below the switch a already`,
		`{"preemption":{"by":"qos","mode":"requeue"},"qos":[{"name":"x","preempts":["y"]},{"name":"y","preempts":["x"]}]}`:   `qos[0].preempts: the QoS x would preempt itself through others`,
		`{"options":{"MaxBatchRequeue":9}}`:                                                                                  `options.MaxBatchRequeue: Slurm 22.05.8 does not know it; its options are `,
		`{"options":{"Prolog":"/bin/sh"}}`:                                                                                   `options.Prolog: is no option; the options are BatchStartTimeout, `,
		`{"options":{"KillOnBadExit":2}}`:                                                                                    `options.KillOnBadExit: "2" is not an allowed value: want 0 to 1`,
	} {
		var full map[string]any
		require.NoError(t, json.Unmarshal([]byte(config), &full))
		raw, err := json.Marshal(schema.MergeConfig(map[string]any{"scheduler": map[string]any{"interval_seconds": 30}}, full))
		require.NoError(t, err)
		problems := Backend{}.CheckConfig(version, raw).Problems
		if want == "" {
			require.Empty(t, problems)
			continue
		}
		require.NotEmpty(t, problems, config)
		require.Contains(t, problems[0].Path+": "+problems[0].Message, want)
	}
}
