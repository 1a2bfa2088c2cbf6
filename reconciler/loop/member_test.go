package loop

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// A difference in any field counts, also in fields added later. The reason of an
// assignment does not count.
func TestSameMemberComparesEveryField(t *testing.T) {
	require.True(t, sameMember(plan.Member{}, plan.Member{Reason: "the one free node"}))
	typ := reflect.TypeFor[plan.Member]()
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Name == "Reason" {
			continue
		}
		var m plan.Member
		v := reflect.ValueOf(&m).Elem().Field(i)
		switch v.Kind() {
		case reflect.String:
			v.SetString("x")
		case reflect.Int:
			v.SetInt(1)
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		case reflect.Slice:
			v.Set(reflect.ValueOf([]schema.GPU{{Type: "a100", Count: 1}}))
		case reflect.Struct:
			v.Set(reflect.ValueOf(schema.Shape{Sockets: 1}))
		default:
			t.Fatalf("no differing values known for type %s of field %s", f.Type, f.Name)
		}
		require.False(t, sameMember(plan.Member{}, m), f.Name)
	}
}
