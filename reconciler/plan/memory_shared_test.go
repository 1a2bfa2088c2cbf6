package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

// A step shares all statuses that it does not change.
func TestMemorySharesUnchangedProjects(t *testing.T) {
	v := func(tenant, project string) *Status { return &Status{Key: schema.InstanceKey(tenant, project, "x")} }
	one, two, other, next := v("a", "one"), v("a", "two"), v("b", "one"), v("a", "one")
	m := Remember(one, two, other)
	require.Equal(t, 3, m.Len())

	n := m.With(next, two)
	require.Same(t, next, n.Get(one.Key))
	require.Same(t, one, m.Get(one.Key), "earlier values do not change")
	require.Same(t, (*m.tenants)["b"], (*n.tenants)["b"])
	require.Same(t, m.project("a", "two"), n.project("a", "two"), "the value is the one it had")
	require.NotSame(t, m.project("a", "one"), n.project("a", "one"))

	require.Same(t, m.tenants, m.With(one).Without(schema.InstanceKey("c", "one", "x")).tenants, "no value changed")
	none := m.Without(one.Key).Without(two.Key).Without(other.Key)
	require.Equal(t, Memory{}, none)
	require.Equal(t, m, none.With(one, two, other))
}
