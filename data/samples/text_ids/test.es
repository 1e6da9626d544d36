Hierva agua fresca.
Viértala sobre las hojas.
Espere cuatro minutos.
