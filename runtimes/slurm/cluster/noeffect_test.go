package cluster

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Fields that Slurm takes and that other fields make useless are reported.
func TestConfigFieldsWithoutEffect(t *testing.T) {
	const two = `"partitions":[{"name":"main","max_time_minutes":60},{"name":"quick","max_time_minutes":30}]`
	for config, want := range map[string]string{
		two:                                      "",
		two + `,"preemption":{"by":"partition"}`: "preemption.by: no job preempts another, as all partitions have the same priority_tier",
		`"partitions":[{"name":"a"},{"name":"b","priority_tier":9}],"preemption":{"by":"partition"}`:                                    "",
		`"preemption":{"by":"none","mode":"cancel"}`:                                                                                    "preemption.mode: has no effect without preemption.by",
		`"preemption":{"exempt_minutes":30}`:                                                                                            "preemption.exempt_minutes: has no effect without preemption.by",
		`"priority":{"type":"basic","weights":{"fairshare":5}}`:                                                                         "priority.weights: have no effect with priority.type: basic",
		two + `,"qos":[{"name":"long","max_time_minutes":600}]`:                                                                         "qos[0].max_time_minutes: is 600, and no partition allows more than 60",
		two + `,"qos":[{"name":"long","max_time_minutes":600,"flags":["ignore_partition_max_time"]}]`:                                   "",
		`"partitions":[{"name":"a"},{"name":"b","max_time_minutes":9}],"qos":[{"name":"l","max_time_minutes":99}]`:                      "",
		`"qos":[{"name":"urgent","per_user":{"gpus":8},"group":{"gpus":4}}]`:                                                            "qos[0].per_user.gpus: is 8, and all users together have 4",
		`"qos":[{"name":"maint","flags":["requires_reservation"],"default":true}]`:                                                      "qos[0].flags: this QoS is the default, so Slurm refuses each job that names no reservation",
		`"jobs":{"default_time_minutes":2880,"max_time_minutes":1440}`:                                                                  "jobs.default_time_minutes: is 2880, and no partition allows more than 1440",
		`"partitions":[{"name":"a"},{"name":"b","max_time_minutes":9999}],"jobs":{"default_time_minutes":2880,"max_time_minutes":1440}`: "",
		two + `,"jobs":{"max_time_minutes":1440}`:                                                                                       "jobs.max_time_minutes: each partition has a max_time_minutes of its own",
		`"partitions":[{"name":"a","allow_qos":["normal"]}],"qos":[{"name":"urgent"}]`:                                                  "qos[0].name: no partition takes a job of this QoS: each has an allow_qos without urgent",
		`"partitions":[{"name":"a","allow_qos":["normal"]},{"name":"b"}],"qos":[{"name":"urgent"}]`:                                     "",
		`"options":{"SrunPortRange":"63000-60001"}`:                                                                                     "options.SrunPortRange: begins at 63000, above its end",
		`"qos":[{"name":"q","per_user":{"jobs":100,"submits":10}}]`:                                                                     "qos[0].per_user.jobs: 100 exceeds per_user.submits, which is 10",
		`"preemption":{"by":"qos","mode":"cancel"}`:                                                                                     "preemption.by: no job preempts another, as no QoS has preempts",
		`"options":{"RequeueExit":"3,300-310"}`:                                                                                         "options.RequeueExit: 300-310: no exit code is above 255",
		`"options":{"RequeueExitHold":"0"}`:                                                                                             "options.RequeueExitHold: 0 is the exit code of success: Slurm would requeue each successful job without end",
		`"options":{"SrunPortRange":"6000-7000"}`:                                                                                       "options.SrunPortRange: contains 6818, the port of slurmd: begin above it",
		`"options":{"SrunPortRange":"60001-63000"}`:                                                                                     "",
	} {
		var s Config
		require.NoError(t, json.Unmarshal([]byte("{"+config+"}"), &s), config)
		got := ""
		for _, p := range s.withoutEffect() {
			got += p.Path + ": " + p.Message
		}
		require.Equal(t, want, got, config)
	}
}

// Numbers that slurm.conf(5) advises against are notes of a plan, not errors: Slurm takes them.
func TestPlanNotesOptionsAgainstAdvice(t *testing.T) {
	for options, want := range map[string]string{
		`{"MaxArraySize":10001}`: "MaxArraySize is 10001 and MaxJobCount 10000: one array can hold all jobs that " +
			"slurmctld keeps, and then it refuses others",
		`{"MaxArraySize":10001,"MaxJobCount":500000}`: "",
		`{"TCPTimeout":60}`: "TCPTimeout (60 s) is longer than MessageTimeout (10 s): a request fails before " +
			"the connection does",
		`{"TCPTimeout":60,"MessageTimeout":60}`:       "",
		`{"RequeueExit":"1-9","RequeueExitHold":"3"}`: "the exit codes 1-9 are in RequeueExit and RequeueExitHold: write each in one",
		`{"RequeueExit":"1-2","RequeueExitHold":"3"}`: "",
	} {
		var s Config
		require.NoError(t, json.Unmarshal([]byte(`{"options":`+options+`}`), &s), options)
		require.Equal(t, want, strings.Join(s.againstAdvice(), "; "), options)
	}
}

// A plan says where jobs that name no partition go from a change on, also where the first partition is the default because none is.
func TestPlanNotesAnotherDefaultPartition(t *testing.T) {
	notes := func(was, is string) []string {
		old, err := Parse(json.RawMessage(`{"partitions":` + was + `}`))
		require.NoError(t, err)
		now, err := Parse(json.RawMessage(`{"partitions":` + is + `}`))
		require.NoError(t, err)
		return configNotes(&old, &now)
	}
	const main = `[{"name":"main","default":true},{"name":"long"}]`
	require.Equal(t, []string{"jobs that name no partition go to long, and no longer to main"},
		notes(main, `[{"name":"main"},{"name":"long","default":true}]`))
	require.Equal(t, []string{"jobs that name no partition go to long, and no longer to main"},
		notes(main, `[{"name":"long"},{"name":"main"}]`))
	require.Empty(t, notes(main, `[{"name":"main"},{"name":"long"}]`), "the first is the default, as before")
}
