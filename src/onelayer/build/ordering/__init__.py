"""Parts of sorting and order statistics: threshold units and subset maxima."""
