package main

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ringo-ml/ringo/data"
)

// readPairs reads the first and the second texts of pairs: JSON Lines with anchor and positive, or CSV, whose first line has names and
// whose first two columns are the texts.
func readPairs(file string) (first, second []string, err error) {
	if filepath.Ext(file) == ".csv" {
		return readCSV(file)
	}
	lines, err := data.Lines(file)
	for i, line := range lines {
		var p struct{ Anchor, Positive string }
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			return nil, nil, fmt.Errorf("%s: line %d: %w", file, i+1, err)
		}
		if p.Anchor == "" || p.Positive == "" {
			return nil, nil, fmt.Errorf("%s: line %d has no anchor, or no positive", file, i+1)
		}
		first, second = append(first, p.Anchor), append(second, p.Positive)
	}
	return first, second, err
}

func readCSV(file string) (first, second []string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() // opened for reading only
	rows, err := csv.NewReader(bufio.NewReader(f)).ReadAll()
	for _, row := range rows[min(1, len(rows)):] {
		if len(row) < 2 {
			return nil, nil, fmt.Errorf("%s: a row has %d columns, not 2 or more", file, len(row))
		}
		first, second = append(first, row[0]), append(second, row[1])
	}
	return first, second, err
}
