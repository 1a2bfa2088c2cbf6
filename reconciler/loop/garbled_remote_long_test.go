//go:build long

package loop_test

import (
	"testing"
	"time"
)

func TestLongGarbledRemoteHeals(t *testing.T) {
	garbledRemoteHeals(t, uint64(time.Now().UnixNano()), 180, 15)
}
