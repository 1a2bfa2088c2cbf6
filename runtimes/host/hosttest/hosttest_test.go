package hosttest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/host/hosttest"
	"berth/runtimes/host/lab"
)

func TestLab(t *testing.T) {
	begun := time.Now()
	l, hosts := hosttest.Lab(t, lab.Node{Name: "ctl"}, lab.Node{Name: "w1", Devices: []string{"/dev/nvidia0", "/dev/nvidia1"}})
	t.Log("up after", time.Since(begun))
	for _, h := range l.Nodes {
		far := hosts.Host(plan.Member{Node: h.Name, Address: h.Address, SSHPort: 22})
		begun := time.Now()
		res, err := far.Do(context.Background(), runtimes.Stamp{}, runtimes.Op{Info: &runtimes.Info{}}, runtimes.Op{Stat: &runtimes.Stat{Paths: []string{"/dev/nvidia0"}}})
		require.NoError(t, err)
		t.Log("first call", time.Since(begun))
		require.Equal(t, h.Name, res[0].Info.Hostname)
		require.Equal(t, 0, res[0].Info.UID)
		require.Equal(t, h.Name == "w1", res[1].Stats[0].Exists)
	}
}
