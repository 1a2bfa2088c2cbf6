package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// An operation that did not start within 24 hours expires, and one that runs does not.
func TestOperationExpiresAfterADay(t *testing.T) {
	t.Parallel()
	docs := []*schema.MemberOperation{{
		Header: schema.Header{Key: schema.Key{Kind: schema.KindMemberOperation, Name: "fan"}},
		Spec:   schema.MemberOperationSpec{Operation: schema.OpDrain, Member: "worker-0"},
	}}
	asked := time.Date(2026, 8, 1, 10, 0, 0, 0, time.UTC)
	known := plan.Operations(docs, nil, asked)
	after := func(d time.Duration) plan.Operation { return plan.Operations(docs, known, asked.Add(d))[0] }
	require.Equal(t, plan.OperationRequested, after(24*time.Hour).Phase)
	late := after(24*time.Hour + time.Second)
	require.Equal(t, plan.OperationExpired, late.Phase)
	require.Equal(t, "not started within 24h0m0s", late.Message)
	known[0].Phase = plan.OperationRunning
	require.Equal(t, plan.OperationRunning, after(48*time.Hour).Phase)
}
