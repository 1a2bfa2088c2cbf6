package queue_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/schema/queue"
)

// The form of an idempotency key is the same in every mode (C7).
func TestIdempotencyKeyHasOneForm(t *testing.T) {
	for _, key := range []string{"a", "run-17_b.2", strings.Repeat("x", 64)} {
		require.NoError(t, queue.CheckKey(key), key)
	}
	for _, key := range []string{"", "a b", "a\nb", "a|b", "ä", strings.Repeat("x", 65)} {
		require.ErrorIs(t, queue.CheckKey(key), queue.ErrDenied, key)
	}
}

// A key with its time is recent for a while, and no other key is.
func TestKeyHasItsTime(t *testing.T) {
	now := time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC)
	key := queue.NewKey(now, "ABC")
	require.Equal(t, "20261124T100000Z-abc", key)
	require.NoError(t, queue.CheckKey(key))
	require.True(t, queue.MadeWithin(key, now.Add(time.Minute), 2*time.Minute))
	require.False(t, queue.MadeWithin(key, now.Add(3*time.Minute), 2*time.Minute))
	require.False(t, queue.MadeWithin(key, now.Add(-3*time.Minute), 2*time.Minute), "a clock is wrong")
	require.False(t, queue.MadeWithin("nightly", now, time.Hour))
}

// A request that no scheduler could take is refused with the reason. Different requests have different
// digests.
func TestRequestIsCheckedBeforeTheScheduler(t *testing.T) {
	valid := queue.Request{Script: "#!/bin/sh\ntrue\n", Name: "a.job-1", WorkDir: "/data/ada", Minutes: 5, Nodes: 1, MemoryMiB: 1 << 21,
		GPUs: 2}
	require.NoError(t, valid.Check())
	require.NoError(t, queue.Request{Script: "#!/bin/sh"}.Check())
	require.NoError(t, queue.Request{Script: "#!/bin/sh", Queue: "_debug,Mem128"}.Check())
	for name, change := range map[string]func(*queue.Request){
		"no #!":              func(r *queue.Request) { r.Script = "echo" },
		"empty script":       func(r *queue.Request) { r.Script = "" },
		"latin-1":            func(r *queue.Request) { r.Script = "#!/bin/sh\n# caf\xe9\n" },
		"too long":           func(r *queue.Request) { r.Script = "#!/bin/sh\n" + strings.Repeat("x", queue.MaxScript) },
		"option as a name":   func(r *queue.Request) { r.Name = "-x" },
		"queue with a space": func(r *queue.Request) { r.Queue = "long queue" },
		"option as a queue":  func(r *queue.Request) { r.Queue = "--wrap=x" },
		"long queue":         func(r *queue.Request) { r.Queue = strings.Repeat("q", 65) },
		"empty name of two":  func(r *queue.Request) { r.Queue = "main," },
		"line break":         func(r *queue.Request) { r.Name = "a\nb" },
		"relative path":      func(r *queue.Request) { r.WorkDir = "data" },
		"parent directory":   func(r *queue.Request) { r.WorkDir = "/data/../etc" },
		"negative":           func(r *queue.Request) { r.GPUs = -1 },
		"absurd":             func(r *queue.Request) { r.Tasks = 1 << 30 },
		"longer than a year": func(r *queue.Request) { r.Minutes = queue.MaxMinutes + 1 },
	} {
		r := valid
		change(&r)
		require.ErrorIs(t, r.Check(), queue.ErrDenied, name)
		require.NotEqual(t, valid.Digest(), r.Digest(), name)
	}
	require.ErrorContains(t, queue.Request{Script: "#!/bin/sh\n# \ufffd is text\n# caf\xe9\n"}.Check(), "not UTF-8 at line 3")
	named := valid
	named.ScriptName = "job.sh"
	require.NoError(t, named.Check())
	require.Equal(t, valid.Digest(), named.Digest(), "the same script from another file")
	for id, ok := range map[string]bool{"1": true, "12_3": true, "0": false, "": false, "1;2": false, "12_[1-3]": false, "1 2": false} {
		require.Equal(t, ok, queue.Ref{JobID: id}.Check() == nil, id)
	}
}
