//go:build long

package loop_test

import (
	"fmt"
	"testing"

	"berth/examples/explore"
)

func TestLongTwoDaemonsInTheSameSecond(t *testing.T) {
	rounds := explore.Count(5, 100)
	ended := 0
	for i := range rounds {
		if t.Run(fmt.Sprint(i), twoDaemonsInTheSameSecond) {
			ended++
		}
	}
	t.Logf("%d of %d rounds ended with one leader, one daemon that ended with a clear message, a complete audit chain and no repeated "+
		"event", ended, rounds)
}
