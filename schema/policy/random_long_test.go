//go:build long

package policy

import "testing"

func TestLongLayersOnlyNarrow(t *testing.T) { layersOnlyNarrow(t, 1_000_000) }

func TestLongJudgeMatchesEvaluate(t *testing.T) { judgeMatchesEvaluate(t, 100) }

func TestLongExplanationMatchesEvaluation(t *testing.T) { explanationMatchesEvaluation(t, 3000) }
