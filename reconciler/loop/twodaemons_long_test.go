//go:build long

package loop_test

import (
	"fmt"
	"testing"
)

func TestLongTwoDaemonsInTheSameSecond(t *testing.T) {
	const rounds = 100
	ended := 0
	for i := range rounds {
		if t.Run(fmt.Sprint(i), twoDaemonsInTheSameSecond) {
			ended++
		}
	}
	t.Logf("%d of %d rounds ended with one leader, one daemon that ended with a clear message, a complete audit chain and no repeated event", ended, rounds)
}
