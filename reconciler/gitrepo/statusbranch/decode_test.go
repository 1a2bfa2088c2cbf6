package statusbranch

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

func FuzzDecodeStatus(f *testing.F) {
	f.Add([]byte("apiVersion: berth/v1\nkind: InstanceStatus\nkey: {kind: Instance, tenant: a, project: b, name: c}\n"))
	f.Add([]byte("? !!binary x\n: - &a [*a]"))
	f.Add([]byte("apiVersion: berth/v1\nkind: NodeStatus\nkey: {kind: Node, name: n}\nphase: ready\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		unit := DecodeStatus("x.yaml", schema.InstanceKey("a", "b", "c"), b)
		require.Nil(t, unit.Thing)
		require.Equal(t, unit.Status == nil, unit.Warning != "")
		if unit.Status != nil {
			require.Equal(t, unit.Key, unit.Status.Key)
		}
		thing := DecodeStatus("x.yaml", schema.Key{Kind: schema.KindNode, Name: "n"}, b)
		require.Nil(t, thing.Status)
		require.Equal(t, thing.Thing == nil, thing.Warning != "")
		if thing.Thing != nil {
			require.Equal(t, thing.Key, thing.Thing.Key)
		}
	})
}

func TestTextCannotEndCodeSpan(t *testing.T) {
	require.Equal(t, "`a'<b>¦ c`", code("a`<b>|\nc"))
}
