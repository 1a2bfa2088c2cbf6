package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema/queue"
)

func TestNameOfAScript(t *testing.T) {
	for file, want := range map[string]string{
		"job.sh": "job.sh", "/data/my run (2).sh": "my_run__2_.sh", ".run.sh": "x.run.sh", "-x": "x-x", "é.sh": "x_.sh",
		strings.Repeat("n", 70): strings.Repeat("n", 64), "dir/": "dir",
	} {
		require.Equal(t, want, scriptName(file), file)
		require.NoError(t, queue.Request{Script: "#!/bin/sh\n", ScriptName: want}.Check(), want)
	}
}
