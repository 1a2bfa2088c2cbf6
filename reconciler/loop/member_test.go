package loop

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// A difference in any field is seen, in those that come later too; why a member
// is where it is makes none.
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
		case reflect.Slice:
			v.Set(reflect.ValueOf([]schema.GPU{{Type: "a100", Count: 1}}))
		default:
			t.Fatalf("how do two %s of %s differ?", f.Type, f.Name)
		}
		require.False(t, sameMember(plan.Member{}, m), f.Name)
	}
}
