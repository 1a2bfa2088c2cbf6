//go:build long

package slurm_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm"
)

func TestLongNoBackupsAreMadeIfNoneAreKept(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, strings.Replace(onePartition, "{", `{"backup":{"keep":0},`, 1), 0)
	c.rt = slurm.New(slurm.Options{Hosts: c.hosts, Now: func() time.Time { return time.Now().AddDate(0, 0, 5) }})
	require.Empty(t, c.plan(t, u, false).Actions)
}
