package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes"
)

// The reason why a daemon ended is the last fatal line since its last start, bounded, and without its time.
func TestReasonOfAnEndIsTheFatalLineSinceTheLastStart(t *testing.T) {
	const start = "[2026-11-28T02:45:28.346] slurmctld version 22.05.8 started on cluster x\n"
	for log, want := range map[string]string{
		"": "",
		start + "[2026-11-28T02:45:29.000] error: Nodes w2 not responding\n": "",
		start + "[2026-11-28T02:45:29.000] fatal: Partition fat has an invalid qos (high), exiting\n": "fatal: Partition fat has an " +
			"invalid qos (high), exiting",
		"[2026-11-28T02:45:28.346] fatal: earlier\n" + start +
			"[2026-11-28T02:45:29.000] Terminate signal (SIGINT or SIGTERM) received\n": "",
		start + "[2026-11-28T02:45:29.000] slurmctld: fatal: first\nfatal: last\n":                                                  "fatal: last",
		start + "[2026-11-28T02:45:29.000] _slurm_rpc_submit_batch_job: invalid partition x fatal: run this\n":                      "",
		"2026-11-28  2:45:28 0 [ERROR] InnoDB: No space left on device\n2026-11-28  2:45:28 0 [Note] Plugin 'InnoDB' init failed\n": "0 [ERROR] InnoDB: No space left on device",
		"2026-11-28 02:44:51 +0000 Error:     Keyfile is insecure: \"/etc/munge/x.key\" should be owned by UID 102\n":               "Error:     Keyfile is insecure: \"/etc/munge/x.key\" should be owned by UID 102",
		"fatal: \x1b[31mred\x00 and much " + strings.Repeat("x", 300) +
			"\n": "fatal: ?[31mred? and much " + strings.Repeat("x", 200-len("fatal: ?[31mred? and much ")) + "…",
	} {
		file := filepath.Join(t.TempDir(), "log")
		require.NoError(t, os.WriteFile(file, []byte(log), 0o600))
		require.Equal(t, want, whyEnded(runtimes.ServiceSpec{LogFile: file, Started: "slurmctld version"}), log)
	}
	require.Empty(t, whyEnded(runtimes.ServiceSpec{LogFile: "/nonexistent"}))
}
