package plan

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

// A step shares all values that it does not change.
func TestUnitsShareUnchangedValues(t *testing.T) {
	one, two := schema.InstanceKey("a", "one", "x"), schema.InstanceKey("a", "two", "x")
	other := schema.InstanceKey("b", "one", "x")
	v, w := new(int), new(int)
	u := units[int]{}.with(maps.All(map[schema.Key]*int{one: v, two: v, other: v}))
	require.Equal(t, 3, u.len())

	next := u.with(maps.All(map[schema.Key]*int{one: w, two: v}))
	require.Same(t, w, next.get(one))
	require.Same(t, v, u.get(one), "earlier values do not change")
	require.Same(t, (*u.tenants)["b"], (*next.tenants)["b"])
	require.Same(t, (*(*u.tenants)["a"])["two"], (*(*next.tenants)["a"])["two"], "the value is the one it had")
	require.NotSame(t, (*(*u.tenants)["a"])["one"], (*(*next.tenants)["a"])["one"])

	same := u.with(maps.All(map[schema.Key]*int{one: v, schema.InstanceKey("c", "one", "x"): nil}))
	require.Same(t, u.tenants, same.tenants, "no value changed")
	none := u.with(maps.All(map[schema.Key]*int{one: nil, two: nil, other: nil}))
	require.Equal(t, units[int]{}, none)
	require.Equal(t, u, none.with(u.all()))
}
