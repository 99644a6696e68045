"""Parts of memorisation: tables, recall recipes, capacity."""
