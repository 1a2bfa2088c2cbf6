package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/cli"
	"berth/reconciler/plan"
	"berth/reconciler/queueing"
	"berth/runtimes"
	"berth/runtimes/memory"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/queue"
	"berth/webhooks/api"
)

const annasToken = "a-token-of-anna-that-is-long-enough"

// queueServer serves the API of the campus with train on the memory runtime. Its first answers to
// submissions are lost.
func queueServer(t *testing.T, lost int, tunes ...func(*queueing.Options)) (*httptest.Server, *memory.World, schema.Key) {
	anna := schema.UnixUser{Name: "anna", UID: 20001}
	world := memory.NewWorld()
	rt := memory.New(world)
	train := schema.InstanceKey("physics", "lattice", "train")
	u := plan.Unit{
		Effective: schema.EffectiveUnit{Key: train, DesiredState: schema.DesiredRunning, Users: []schema.UnixUser{anna},
			Roles: []schema.EffectiveRole{{Name: "controller", ControlPlane: true, Count: 1}, {Name: "worker", Count: 1}}},
		Members: []plan.Member{{Name: "controller-0", Role: "controller", ControlPlane: true, Node: "head-1"},
			{Name: "worker-0", Role: "worker", Node: "gpu-1", CPUs: 8}},
	}
	stamp := runtimes.Stamp{Epoch: 1, Leader: "me"}
	p := plan.Make(plan.Input{Key: train, After: &u.Effective, Members: u.Members,
		Observed: plan.Observed{Key: train, Presence: plan.Absent}, Rules: rt})
	for _, a := range p.Actions {
		require.NoError(t, rt.Apply(t.Context(), runtimes.Change{Plan: &p, Action: a, Stamp: stamp}))
	}
	view := func() (plan.View, bool) {
		return plan.View{Desired: campusEstate(t, nil), Effective: &schema.Effective{}, Units: plan.Remember(&plan.Status{
			Key: train, EffectiveValues: plan.EffectiveValues{App: "slurm", RuntimeBackend: "slurm"},
			Observed: &plan.Observed{Presence: plan.Present, Unit: &u},
		})}, true
	}
	options := queueing.Options{
		View: view, Stamp: func() (runtimes.Stamp, bool) { return stamp, true }, Queues: map[string]runtimes.Queue{"slurm": rt},
	}
	for _, tune := range tunes {
		tune(&options)
	}
	queues := queueing.New(options)
	handler, err := api.New(api.Options{
		Estate: "campus", Log: slog.New(slog.DiscardHandler), Audit: func(audit.Record) error { return nil }, Source: view,
		People: func() []api.Person {
			return []api.Person{{Login: "anna-lattice", Hash: sha256.Sum256([]byte(annasToken))}}
		},
		Live: func() api.Live { return api.Live{Queues: queues} },
	})
	require.NoError(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && lost > 0 {
			lost--
			handler.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		handler.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(server.Close)
	return server, world, train
}

// berthCmd runs a command of berth.
func berthCmd(stdin string, args ...string) (out string, exit int, err error) {
	cmd := newRoot()
	var text strings.Builder
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&text)
	cmd.SetErr(&text)
	cmd.SetArgs(args)
	err = cmd.Execute()
	if e := new(cli.ExitError); errors.As(err, &e) {
		return text.String(), e.Code, err
	} else if err != nil {
		return text.String(), 1, err
	}
	return text.String(), 0, nil
}

// A person submits, lists, reads and cancels jobs at the command line. A submission whose answer is
// lost makes one job.
func TestQueueCommands(t *testing.T) {
	server, world, train := queueServer(t, 2)
	t.Setenv("BERTH_SERVER", server.URL)
	t.Setenv("BERTH_TOKEN", annasToken)
	const at = "physics.lattice/train"
	run := func(stdin string, args ...string) string {
		t.Helper()
		out, _, err := berthCmd(stdin, args...)
		require.NoError(t, err, out)
		return out
	}
	out := run("#!/bin/sh\necho hello\n", "queue", "submit", at, "--name", "greet", "--time", "5", "-o", "json")
	var made jobReport
	require.NoError(t, json.Unmarshal([]byte(out), &made))
	require.Equal(t, []any{"berth.job/v1", "1", "greet", "anna", "RUNNING", 5},
		[]any{made.Format, made.JobID, made.Name, made.User, made.State, made.Minutes})
	out = run("", "queue", "list", at)
	require.Equal(t, 4, strings.Count(out, "\n"), "the heading, one job, and the time below an empty line:\n%s", out)
	require.Regexp(t, `\n\nobserved \S+ \S+Z, \d+ s before the answer\n$`, out)
	require.Equal(t, 1, strings.Count(run("", "queue", "list", at, "--no-headers"), "\n"), "a script reads it")
	require.Regexp(t, `^JOB +STATE +USER +NAME +QUEUE +GPUS +MEMBERS +SUBMITTED +REASON\n1 +RUNNING +anna +greet +- +0 +worker-0 `, out)
	require.NotContains(t, out, "gpu-1", "the name of a host")

	script := filepath.Join(t.TempDir(), "job.sh")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\ntrue\n"), 0o600))
	for range 2 {
		out = run("", "queue", "submit", at, script, "--key", "nightly")
		require.Regexp(t, `job +2\n`, out)
	}
	_, exit, err := berthCmd("#!/bin/sh\nfalse\n", "queue", "submit", at, "--key", "nightly")
	require.Equal(t, 1, exit)
	require.ErrorContains(t, err, "idempotency_key.used")
	require.ErrorContains(t, err, "\nthis call made no job")
	require.NotContains(t, err.Error(), "to learn whether", "an answer of Berth leaves no doubt")
	_, exit, err = berthCmd("#!/bin/sh\ntrue\n", "queue", "submit", at, "--server", "http://127.0.0.1:1", "--key", "lost")
	require.Equal(t, 1, exit)
	require.ErrorContains(t, err, "to learn whether the job exists, repeat the call with --key lost")
	_, exit, err = berthCmd("\ufeff#!/bin/sh\ntrue\n", "queue", "submit", at)
	require.Equal(t, 2, exit)
	require.ErrorContains(t, err, "byte order mark")

	require.Equal(t, 5, strings.Count(run("", "queue", "list", at), "\n"), "the own submission is there")
	require.NoError(t, world.EndJob(train, "1", []byte("hello\n")))
	require.Equal(t, "hello\n", run("", "queue", "output", at, "1"))
	require.Contains(t, run("", "queue", "list", at, "--live"), "COMPLETED")
	out = run("", "queue", "get", at, "1")
	require.Regexp(t, `state +COMPLETED\n(?s:.*)observed +\S+ \S+Z, \d+ s before the answer\n`, out)
	require.Contains(t, run("", "queue", "get", at, "1", "--live"), "COMPLETED")
	out = run("", "queue", "cancel", at, "2")
	require.Contains(t, out, "CANCELLED")
	require.NotContains(t, out, "observed")
	for _, args := range [][]string{{"node", "list", at}, {"node", "list", at, "--live"}} {
		require.Regexp(t, `worker-0 +- +running +8 +0 +-\n\nobserved `, run("", args...))
	}
	require.Regexp(t, `(?s)serves +yes\n.*queue map +everybody\n.*control plane reachable +yes +the control plane runs\n`,
		run("", "queue", "readiness", at))

	wrong := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(wrong, []byte("wrong\n"), 0o600))
	for name, c := range map[string]struct {
		args []string
		exit int
		says string
	}{
		"no such job":      {[]string{"queue", "get", at, "9"}, 1, "resource.not_found"},
		"another project":  {[]string{"queue", "list", "biology.genomes/assembly"}, 1, "resource.not_found"},
		"no instance":      {[]string{"queue", "list", "train"}, 2, "write TENANT.PROJECT/INSTANCE"},
		"no id":            {[]string{"queue", "cancel", at, "all"}, 2, "is not the id of a job"},
		"no script":        {[]string{"queue", "submit", at}, 2, "standard input is empty: name the file of the script"},
		"no encryption":    {[]string{"queue", "list", at, "--server", "http://berth.example.org"}, 2, "use https"},
		"no server there":  {[]string{"queue", "list", at, "--server", "http://127.0.0.1:1"}, 1, "no answer of the server"},
		"not a token":      {[]string{"queue", "list", at, "--token-file", script}, 2, "the file must have the token alone"},
		"a wrong token":    {[]string{"queue", "list", at, "--token-file", wrong}, 1, "auth.invalid"},
		"another way path": {[]string{"queue", "list", "physics.lattice/../x"}, 2, "write TENANT.PROJECT/INSTANCE"},
	} {
		_, exit, err := berthCmd("", c.args...)
		require.Equal(t, c.exit, exit, "%s: %v", name, err)
		require.ErrorContains(t, err, c.says, name)
	}
	jobs, _, err := berthCmd("", "queue", "list", at, "--state", "cancelled", "-o", "json")
	require.NoError(t, err)
	var list jobList
	require.NoError(t, json.Unmarshal([]byte(jobs), &list))
	require.Len(t, list.Items, 1)
	require.Equal(t, queue.Durable, list.Items[0].Durability)
	require.False(t, list.ObservedAt.IsZero())
}
