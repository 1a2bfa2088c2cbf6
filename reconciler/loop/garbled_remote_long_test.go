//go:build long

package loop_test

import (
	"fmt"
	"testing"
	"time"
)

func TestLongGarbledRemoteHeals(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { garbledRemoteHeals(t, seed, 12, 4) })
	}
	t.Run("many changes", func(t *testing.T) { garbledRemoteHeals(t, uint64(time.Now().UnixNano()), 180, 15) })
}
